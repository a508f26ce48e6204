//! A certificate for this machine, to develop with: made once, kept in a folder, and made anew before it expires.
//!
//! Small enough to write by hand: X.509 (RFC 5280) around a key and a signature of ring's.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate::{Certificate, fingerprint};
use super::der::{tag, value};

const DAY: Duration = Duration::from_secs(86_400);

/// How long one is valid: as long as browsers take one of a public root's to be.
const DAYS: u32 = 397;

/// One that ends sooner is made anew.
const LEFT: u32 = 30;

/// A certificate for `localhost`, `127.0.0.1` and `::1`, signed by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevelopmentCertificate {
    /// The file of the certificate and its key, which only its owner may read. One file, so that nobody ever finds the
    /// certificate of one and the key of another.
    pub file: PathBuf,
    /// The SHA-256 of the certificate, in hexadecimal: what browsers show of it.
    pub fingerprint: String,
    /// Whether it was made just now.
    pub is_new: bool,
}

impl DevelopmentCertificate {
    /// The one in `folder`, which is made if it is not there. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be written to, or the system gives no randomness.
    pub fn keep(folder: &Path) -> io::Result<DevelopmentCertificate> {
        let file = folder.join("localhost.pem");
        if let Some(der) = kept(&file) {
            return Ok(DevelopmentCertificate { file, fingerprint: fingerprint(&der), is_new: false });
        }
        fs::create_dir_all(folder)?;
        let (der, pkcs8) = make(SystemTime::now())?;
        write_whole(&file, &[pem("CERTIFICATE", &der), pem("PRIVATE KEY", &pkcs8)].concat())?;
        Ok(DevelopmentCertificate { file, fingerprint: fingerprint(&der), is_new: true })
    }
}

/// A kept certificate that is valid for a while.
fn kept(path: &Path) -> Option<CertificateDer<'static>> {
    let der = CertificateDer::from_pem_file(path).ok()?;
    PrivateKeyDer::from_pem_file(path).ok()?;
    let ends = Certificate::read(&der)?.not_after;
    (ends > SystemTime::now() + DAY * LEFT).then_some(der)
}

/// Nobody sees half of it, and nobody else may read it.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension(format!("new{}", std::process::id()));
    // Of a process with this number that was killed.
    let _ = fs::remove_file(&next);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    fs::rename(&next, path)
}

fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 48;
    let lines: Vec<String> = der.chunks(LINE).map(base64).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at > three.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

fn make(now: SystemTime) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let no_randomness = |_| io::Error::other("the system gives no randomness");
    let random = SystemRandom::new();
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(no_randomness)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random)
        .map_err(|rejected| io::Error::other(rejected.to_string()))?;
    let mut serial = [0; 16];
    random.fill(&mut serial).map_err(no_randomness)?;
    // Positive, and of one length (RFC 5280, 4.1.2.2).
    serial[0] = serial[0] & 0x7F | 0x40;
    let body = to_be_signed(&serial, now, key.public_key().as_ref());
    let signature = key.sign(&random, &body).map_err(no_randomness)?;
    let signed = value(
        tag::SEQUENCE,
        &[&body, &sequence(&[&oid(ECDSA_WITH_SHA256)]), &value(tag::BIT_STRING, &[&[0], signature.as_ref()])],
    );
    Ok((signed, pkcs8.as_ref().to_vec()))
}

const ECDSA_WITH_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
const P256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07];
const SERVER_AUTH: &[u8] = &[0x2B, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(tag::SEQUENCE, parts)
}

fn oid(bytes: &[u8]) -> Vec<u8> {
    value(tag::OID, &[bytes])
}

/// RFC 5280, 4.1.
fn to_be_signed(serial: &[u8], now: SystemTime, public_key: &[u8]) -> Vec<u8> {
    let common_name =
        sequence(&[&oid(&[0x55, 0x04, 0x03]), &value(tag::UTF8_STRING, &[b"localhost (rookery)"])]);
    let name = sequence(&[&value(tag::SET, &[&common_name])]);
    let validity = sequence(&[&utc_time(now - DAY), &utc_time(now + DAY * (DAYS - 1))]);
    let algorithm = sequence(&[&oid(EC_PUBLIC_KEY), &oid(P256)]);
    let key = sequence(&[&algorithm, &value(tag::BIT_STRING, &[&[0], public_key])]);
    let names = sequence(&[
        &value(tag::implicit(2), &[b"localhost"]),
        &value(tag::implicit(7), &[&[127, 0, 0, 1]]),
        &value(tag::implicit(7), &[&std::net::Ipv6Addr::LOCALHOST.octets()]),
    ]);
    let extensions = sequence(&[
        &extension(&[0x55, 0x1D, 0x11], false, &names),
        // No authority: it signs no others.
        &extension(&[0x55, 0x1D, 0x13], true, &sequence(&[])),
        // digitalSignature
        &extension(&[0x55, 0x1D, 0x0F], true, &value(tag::BIT_STRING, &[&[7, 0x80]])),
        &extension(&[0x55, 0x1D, 0x25], false, &sequence(&[&oid(SERVER_AUTH)])),
    ]);
    sequence(&[
        &value(tag::explicit(0), &[&value(tag::INTEGER, &[&[2]])]),
        &value(tag::INTEGER, &[serial]),
        &sequence(&[&oid(ECDSA_WITH_SHA256)]),
        &name,
        &validity,
        &name,
        &key,
        &value(tag::explicit(3), &[&extensions]),
    ])
}

fn extension(id: &[u8], is_critical: bool, content: &[u8]) -> Vec<u8> {
    let critical = if is_critical { value(tag::BOOLEAN, &[&[0xFF]]) } else { Vec::new() };
    sequence(&[&oid(id), &critical, &value(tag::OCTET_STRING, &[content])])
}

/// RFC 5280, 4.1.2.5.1; from 2050 on it would be another kind.
fn utc_time(time: SystemTime) -> Vec<u8> {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // "Sun, 06 Nov 1994 08:49:37 GMT"
    let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(&text[8..11]).map_or(1, |at| at / 3 + 1);
    let digits = format!(
        "{}{month:02}{}{}{}{}Z",
        &text[14..16],
        &text[5..7],
        &text[17..19],
        &text[20..22],
        &text[23..25]
    );
    value(tag::UTC_TIME, &[digits.as_bytes()])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn what_is_made_is_read() {
        let now = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        let (der, _) = make(now).unwrap();
        let read = Certificate::read(&der).unwrap();
        assert_eq!(read.not_before, now - DAY);
        assert_eq!(read.not_after, now + DAY * (DAYS - 1));
        assert_eq!(read.hosts, ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(read.subject(), "CN=localhost (rookery)");
        assert!(read.is_self_issued());
    }

    #[test]
    fn one_is_kept_until_it_is_about_to_expire() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("tls");
        let made = DevelopmentCertificate::keep(&place).unwrap();
        assert!(made.is_new);
        assert_eq!(fs::metadata(&made.file).unwrap().permissions().mode() & 0o777, 0o600);
        let kept = DevelopmentCertificate::keep(&place).unwrap();
        assert_eq!(kept, DevelopmentCertificate { is_new: false, ..made.clone() });
        let (old, key) = make(SystemTime::now() - DAY * (DAYS - LEFT)).unwrap();
        write_whole(&made.file, &[pem("CERTIFICATE", &old), pem("PRIVATE KEY", &key)].concat()).unwrap();
        let anew = DevelopmentCertificate::keep(&place).unwrap();
        assert!(anew.is_new && anew.fingerprint != made.fingerprint && anew.fingerprint != fingerprint(&old));
        let (der, _) = make(SystemTime::now()).unwrap();
        write_whole(&made.file, &pem("CERTIFICATE", &der)).unwrap();
        assert!(DevelopmentCertificate::keep(&place).unwrap().is_new, "one without a key is not kept");
    }
}
