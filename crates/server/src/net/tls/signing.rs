//! Private keys, and the certificates (RFC 5280) and certificate requests (RFC 2986) that are
//! signed with them.
//!
//! This module encodes the DER itself, and uses the crate ring for keys and signatures.

// The crate rcgen could encode the DER, but needs Rust 1.88.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::der::{tag, value};

const ECDSA_WITH_SHA256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
const P256: &[u8] = &[0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07];
const SERVER_AUTH: &[u8] = &[0x2B, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const EXTENSION_REQUEST: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x09, 0x0E];
const ACME_IDENTIFIER: &[u8] = &[0x2B, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1F];

/// The validity of the certificate that answers an ACME challenge. Authorities do not check it.
const CHALLENGE_VALIDITY: Duration = Duration::from_secs(86_400);

/// A private ECDSA key over P-256. A TLS handshake with it takes 120 us of the I/O thread's time,
/// while RSA takes 400 us.
pub struct SigningKey {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl SigningKey {
    /// Generates a private key.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub fn generate() -> io::Result<SigningKey> {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            .map_err(|_| no_randomness())?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random)
                .map_err(|rejected| io::Error::other(rejected.to_string()))?;
        Ok(SigningKey { pkcs8: pkcs8.as_ref().to_vec(), pair, random })
    }

    /// Returns the private key in PEM (RFC 7468, 10).
    pub fn pem(&self) -> String {
        pem("PRIVATE KEY", &self.pkcs8)
    }

    /// Makes a certificate signing request in DER for `hosts`, which are host names and IP
    /// addresses.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers.
    pub fn certificate_request(&self, hosts: &[&str]) -> io::Result<Vec<u8>> {
        let extensions = sequence(&[&Extension::for_hosts(hosts).0]);
        let attribute = sequence(&[&oid(EXTENSION_REQUEST), &value(tag::SET, &[&extensions])]);
        self.signed(&sequence(&[
            &value(tag::INTEGER, &[&[0]]),
            // The subject is empty, because the hosts are in the alternative names, and authorities
            // are phasing out common names.
            &sequence(&[]),
            &self.public_key(),
            &value(tag::explicit(0), &[&attribute]),
        ]))
    }

    /// Makes a certificate in DER that is signed with this key (self-signed).
    pub(super) fn certificate(
        &self,
        common_name: &str,
        valid: Range<SystemTime>,
        extensions: &[Extension],
    ) -> io::Result<Vec<u8>> {
        let mut serial = [0; 16];
        self.random.fill(&mut serial).map_err(|_| no_randomness())?;
        // The serial number is positive and has a fixed length (RFC 5280, 4.1.2.2).
        serial[0] = serial[0] & 0x7F | 0x40;
        let name = sequence(&[
            &oid(&[0x55, 0x04, 0x03]),
            &value(tag::UTF8_STRING, &[common_name.as_bytes()]),
        ]);
        let name = sequence(&[&value(tag::SET, &[&name])]);
        let extensions: Vec<&[u8]> = extensions.iter().map(|extension| &extension.0[..]).collect();
        self.signed(&sequence(&[
            &value(tag::explicit(0), &[&value(tag::INTEGER, &[&[2]])]),
            &value(tag::INTEGER, &[&serial]),
            &sequence(&[&oid(ECDSA_WITH_SHA256)]),
            &name,
            &sequence(&[&utc_time(valid.start), &utc_time(valid.end)]),
            &name,
            &self.public_key(),
            &value(tag::explicit(3), &[&sequence(&extensions)]),
        ]))
    }

    fn signed(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let signature = self.pair.sign(&self.random, body).map_err(|_| no_randomness())?;
        let signature = value(tag::BIT_STRING, &[&[0], signature.as_ref()]);
        Ok(sequence(&[body, &sequence(&[&oid(ECDSA_WITH_SHA256)]), &signature]))
    }

    fn public_key(&self) -> Vec<u8> {
        let algorithm = sequence(&[&oid(EC_PUBLIC_KEY), &oid(P256)]);
        sequence(&[&algorithm, &value(tag::BIT_STRING, &[&[0], self.pair.public_key().as_ref()])])
    }
}

/// Formats the type without the private key, which must not be shown.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

/// Makes the certificate that proves to an ACME authority over TLS that this server controls a host
/// (RFC 8737, 3). It contains the hash of the key authorization.
pub(super) fn challenge_certificate(
    host: &str,
    key_authorization: &str,
) -> io::Result<CertifiedKey> {
    let key = SigningKey::generate()?;
    let key_authorization_hash =
        value(tag::OCTET_STRING, &[digest(&SHA256, key_authorization.as_bytes()).as_ref()]);
    let extensions = [
        Extension::for_hosts(&[host]),
        Extension::new(ACME_IDENTIFIER, true, &key_authorization_hash),
    ];
    let now = SystemTime::now();
    let der = key.certificate(
        "rookery",
        now - CHALLENGE_VALIDITY..now + CHALLENGE_VALIDITY,
        &extensions,
    )?;
    let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.pkcs8));
    let key = any_ecdsa_type(&pkcs8).map_err(io::Error::other)?;
    // `from_der` is not used, because it refuses unknown critical extensions, and this one must be
    // critical.
    Ok(CertifiedKey::new(vec![CertificateDer::from(der)], key))
}

/// A certificate extension (RFC 5280, 4.2) in DER.
pub(super) struct Extension(Vec<u8>);

impl Extension {
    fn new(id: &[u8], is_critical: bool, content: &[u8]) -> Extension {
        let critical = if is_critical { value(tag::BOOLEAN, &[&[0xFF]]) } else { Vec::new() };
        Extension(sequence(&[&oid(id), &critical, &value(tag::OCTET_STRING, &[content])]))
    }

    /// Makes the certificate extension that contains the alternative names, which are host names
    /// and IP addresses.
    pub(super) fn for_hosts(hosts: &[&str]) -> Extension {
        let names: Vec<Vec<u8>> = hosts
            .iter()
            .map(|host| match host.parse::<IpAddr>() {
                Ok(IpAddr::V4(address)) => value(tag::implicit(7), &[&address.octets()]),
                Ok(IpAddr::V6(address)) => value(tag::implicit(7), &[&address.octets()]),
                Err(_) => value(tag::implicit(2), &[host.as_bytes()]),
            })
            .collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        Extension::new(&[0x55, 0x1D, 0x11], false, &sequence(&names))
    }

    /// Makes the certificate extension which states that the certificate does not belong to a
    /// certificate authority.
    pub(super) fn not_a_ca() -> Extension {
        Extension::new(&[0x55, 0x1D, 0x13], true, &sequence(&[]))
    }

    /// Makes the certificate extension for the key usage `digitalSignature`.
    pub(super) fn digital_signature() -> Extension {
        Extension::new(&[0x55, 0x1D, 0x0F], true, &value(tag::BIT_STRING, &[&[7, 0x80]]))
    }

    pub(super) fn server_auth() -> Extension {
        Extension::new(&[0x55, 0x1D, 0x25], false, &sequence(&[&oid(SERVER_AUTH)]))
    }
}

fn no_randomness() -> io::Error {
    io::Error::other("the system provides no random numbers")
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(tag::SEQUENCE, parts)
}

fn oid(bytes: &[u8]) -> Vec<u8> {
    value(tag::OID, &[bytes])
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    const LINE: usize = 48;
    let lines: Vec<String> = der.chunks(LINE).map(|line| STANDARD.encode(line)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Encodes a time before the year 2050 as a `UTCTime`, which certificates use for such times (RFC
/// 5280, 4.1.2.5.1).
fn utc_time(time: SystemTime) -> Vec<u8> {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // Such as "Sun, 06 Nov 1994 08:49:37 GMT".
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
    use super::*;
    use crate::net::tls::certificate::Certificate;

    #[test]
    fn a_challenge_certificate_names_only_its_host() {
        let made = challenge_certificate("app.example.org", "token.thumbprint").unwrap();
        let der = &made.cert[0];
        assert_eq!(Certificate::parse(der).unwrap().hosts, ["app.example.org"]);
        // The extension is critical, and contains the SHA-256 in an octet string (RFC 8737, 3).
        let key_authorization_hash = digest(&SHA256, b"token.thumbprint");
        let wanted = [
            &oid(ACME_IDENTIFIER)[..],
            &[1, 1, 0xFF, 4, 34, 4, 32],
            key_authorization_hash.as_ref(),
        ]
        .concat();
        assert!(der.windows(wanted.len()).any(|window| window == wanted));
    }

    #[test]
    fn openssl_verifies_a_certificate_request() {
        let der = SigningKey::generate()
            .unwrap()
            .certificate_request(&["app.example.org", "192.0.2.1", "2001:db8::1"])
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("request.der");
        std::fs::write(&file, der).unwrap();
        let openssl = std::process::Command::new("openssl")
            .args(["req", "-inform", "DER", "-noout", "-verify", "-text", "-in"])
            .arg(&file)
            .output();
        let output = openssl.expect("openssl is required by the TLS tests");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains(
                "DNS:app.example.org, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1"
            ),
            "{text}"
        );
        assert!(text.to_lowercase().contains("verify ok"), "{text}");
    }
}
