//! The self-signed certificate for development on this machine. It is stored in a folder, and
//! replaced before it expires.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rookery_system::file;
use rookery_system::random::unpredictable;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::{Certificate, fingerprint};
use super::signing::{Extension, SigningKey, pem};

const DAY: Duration = Duration::from_secs(86_400);

/// The number of days for which a development certificate is valid. This is the maximum that
/// browsers accept for certificates of public authorities.
const VALID_DAYS: u32 = 397;

/// A development certificate is replaced if it is valid for fewer than this number of days.
const RENEWAL_DAYS: u32 = 30;

/// A self-signed certificate for development, valid for `localhost`, `127.0.0.1` and `::1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevelopmentCertificate {
    /// The path of the file that contains the development certificate and its key. Only the owner
    /// of the file can read it. The certificate and the key are in a single file, so that they
    /// always match.
    pub file: PathBuf,
    /// The SHA-256 hash of the certificate in hexadecimal, as browsers show it.
    pub fingerprint: String,
    /// True if the certificate was newly created, and false if it was loaded from the file.
    pub is_new: bool,
}

impl DevelopmentCertificate {
    /// Loads the development certificate from `folder`, or creates it if it is missing or about to
    /// expire. Blocks.
    ///
    /// # Errors
    /// Fails if the folder is not writable, and if the system provides no random numbers.
    pub fn load_or_create(folder: &Path) -> io::Result<DevelopmentCertificate> {
        let file = folder.join("localhost.pem");
        if let Some(der) = load_valid(&file) {
            return Ok(DevelopmentCertificate {
                file,
                fingerprint: fingerprint(&der),
                is_new: false,
            });
        }
        fs::create_dir_all(folder)?;
        let (der, key) = create(SystemTime::now())?;
        write_atomically(&file, &(pem("CERTIFICATE", &der) + &key.pem()))?;
        Ok(DevelopmentCertificate { file, fingerprint: fingerprint(&der), is_new: true })
    }
}

/// Loads the development certificate from a file. Returns `None` if it is about to expire or its
/// key is missing.
fn load_valid(path: &Path) -> Option<CertificateDer<'static>> {
    let der = CertificateDer::from_pem_file(path).ok()?;
    PrivateKeyDer::from_pem_file(path).ok()?;
    let ends = Certificate::parse(&der)?.not_after;
    (ends > SystemTime::now() + DAY * RENEWAL_DAYS).then_some(der)
}

/// Writes a file atomically, with permissions that let only its owner read it.
fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    // Several processes may write the file at once, in containers also with the same process id.
    let next = path.with_extension(format!("new{:016x}", unpredictable()));
    let mut file =
        file::private(fs::OpenOptions::new().write(true).create_new(true)).open(&next)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    fs::rename(&next, path)
}

fn create(now: SystemTime) -> io::Result<(Vec<u8>, SigningKey)> {
    let key = SigningKey::generate()?;
    let extensions = [
        Extension::for_hosts(&["localhost", "127.0.0.1", "::1"]),
        Extension::not_a_ca(),
        Extension::digital_signature(),
        Extension::server_auth(),
    ];
    let der = key.certificate(
        "localhost (rookery)",
        now - DAY..now + DAY * (VALID_DAYS - 1),
        &extensions,
    )?;
    Ok((der, key))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_created_certificate_can_be_parsed() {
        let now = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        let (der, _) = create(now).unwrap();
        let read = Certificate::parse(&der).unwrap();
        assert_eq!(read.not_before, now - DAY);
        assert_eq!(read.not_after, now + DAY * (VALID_DAYS - 1));
        assert_eq!(read.hosts, ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(read.subject(), "CN=localhost (rookery)");
        assert!(read.is_self_issued());
    }

    #[test]
    fn a_certificate_is_kept_until_shortly_before_expiry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls");
        let made = DevelopmentCertificate::load_or_create(&path).unwrap();
        assert!(made.is_new);
        let mode = file::mode(&fs::metadata(&made.file).unwrap());
        assert_eq!(mode.unwrap_or(0o600), 0o600);
        let kept = DevelopmentCertificate::load_or_create(&path).unwrap();
        assert_eq!(kept, DevelopmentCertificate { is_new: false, ..made.clone() });
        let (old, key) = create(SystemTime::now() - DAY * (VALID_DAYS - RENEWAL_DAYS)).unwrap();
        write_atomically(&made.file, &(pem("CERTIFICATE", &old) + &key.pem())).unwrap();
        let anew = DevelopmentCertificate::load_or_create(&path).unwrap();
        assert!(
            anew.is_new
                && anew.fingerprint != made.fingerprint
                && anew.fingerprint != fingerprint(&old)
        );
        let (der, _) = create(SystemTime::now()).unwrap();
        write_atomically(&made.file, &pem("CERTIFICATE", &der)).unwrap();
        assert!(
            DevelopmentCertificate::load_or_create(&path).unwrap().is_new,
            "a file without a key is replaced"
        );
    }
}
