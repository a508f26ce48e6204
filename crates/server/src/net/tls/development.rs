//! The self-signed certificate for development on this machine. It is stored in a folder, and
//! replaced before it expires.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use rookery_system::file;
use rookery_system::random::unpredictable;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::{Certificate, fingerprint};

const DAY: Duration = Duration::from_secs(86_400);

/// The number of days for which a development certificate is valid. This is the maximum that
/// browsers accept for certificates of public authorities.
const VALID_DAYS: u32 = 397;

/// A development certificate is replaced if it is valid for fewer than this number of days.
const RENEWAL_DAYS: u32 = 30;

/// The name of the file that contains the certificate and its key.
const FILE: &str = "localhost.pem";

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
        let file = folder.join(FILE);
        if let Some(der) = load_valid(&file) {
            return Ok(DevelopmentCertificate {
                file,
                fingerprint: fingerprint(&der),
                is_new: false,
            });
        }
        fs::create_dir_all(folder)?;
        let (certificate, key) = create(SystemTime::now()).map_err(io::Error::other)?;
        write_atomically(&file, &(certificate.pem() + &key.serialize_pem()))?;
        let fingerprint = fingerprint(certificate.der());
        Ok(DevelopmentCertificate { file, fingerprint, is_new: true })
    }

    /// Checks whether [`load_or_create`](Self::load_or_create) could succeed, without changing
    /// anything. Blocks.
    ///
    /// # Errors
    /// Fails if the certificate is missing or about to expire, and the folder is not writable.
    pub fn check(folder: &Path) -> io::Result<()> {
        match load_valid(&folder.join(FILE)) {
            Some(_) => Ok(()),
            None => file::check_creatable_folder(folder),
        }
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

fn create(now: SystemTime) -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, "localhost (rookery)");
    params.not_before = (now - DAY).into();
    params.not_after = (now + DAY * (VALID_DAYS - 1)).into();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok((params.self_signed(&key)?, key))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_created_certificate_can_be_parsed() {
        let now = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        let (certificate, _) = create(now).unwrap();
        let read = Certificate::parse(certificate.der()).unwrap();
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
        DevelopmentCertificate::check(&path).unwrap();
        assert!(!path.exists());
        let made = DevelopmentCertificate::load_or_create(&path).unwrap();
        assert!(made.is_new);
        DevelopmentCertificate::check(&path).unwrap();
        assert!(DevelopmentCertificate::check(&made.file.join("below")).is_err());
        let mode = file::mode(&fs::metadata(&made.file).unwrap());
        assert_eq!(mode.unwrap_or(0o600), 0o600);
        let kept = DevelopmentCertificate::load_or_create(&path).unwrap();
        assert_eq!(kept, DevelopmentCertificate { is_new: false, ..made.clone() });
        let (old, key) = create(SystemTime::now() - DAY * (VALID_DAYS - RENEWAL_DAYS)).unwrap();
        write_atomically(&made.file, &(old.pem() + &key.serialize_pem())).unwrap();
        let anew = DevelopmentCertificate::load_or_create(&path).unwrap();
        assert!(
            anew.is_new
                && anew.fingerprint != made.fingerprint
                && anew.fingerprint != fingerprint(old.der())
        );
        let (certificate, _) = create(SystemTime::now()).unwrap();
        write_atomically(&made.file, &certificate.pem()).unwrap();
        assert!(
            DevelopmentCertificate::load_or_create(&path).unwrap().is_new,
            "a file without a key is replaced"
        );
    }
}
