//! A parser of X.509 certificates (RFC 5280, 4.1). It reads the fields that are needed for log
//! messages, for the choice of a certificate by host name, and for the application.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::der::{Values, dotted, tag};

/// The fields of an X.509 certificate that the server uses.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    /// The name of the certificate's issuer, in DER.
    issuer: Vec<u8>,
    /// The name of the certificate's subject, in DER.
    subject: Vec<u8>,
    pub(super) not_before: SystemTime,
    pub(super) not_after: SystemTime,
    /// The host names and IP addresses for which the certificate is valid, in lower case.
    pub(super) hosts: Vec<String>,
}

impl Certificate {
    /// Parses an X.509 certificate in DER. Returns `None` if it is malformed.
    pub(super) fn parse(der: &[u8]) -> Option<Certificate> {
        let mut signed = Values(Values(der).take(tag::SEQUENCE)?);
        let mut fields = Values(signed.take(tag::SEQUENCE)?);
        fields.take(tag::explicit(0));
        fields.take(tag::INTEGER)?;
        fields.take(tag::SEQUENCE)?;
        let issuer = fields.whole()?.to_vec();
        let mut validity = Values(fields.take(tag::SEQUENCE)?);
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = fields.whole()?.to_vec();
        fields.take(tag::SEQUENCE)?;
        let mut hosts = Vec::new();
        while let Some((tag, content)) = fields.next() {
            if tag == tag::explicit(3) {
                hosts = hosts_of(content).unwrap_or_default();
            }
        }
        if hosts.is_empty() {
            // Older certificates have no alternative names and contain the host in the common name,
            // which clients ignore by now.
            hosts.extend(common_name(&subject).map(|name| name.to_ascii_lowercase()));
        }
        Some(Certificate { issuer, subject, not_before, not_after, hosts })
    }

    /// Returns the name of the certificate's subject as text (RFC 4514).
    pub(super) fn subject(&self) -> String {
        name_text(&self.subject)
    }

    /// Returns the name of the certificate's issuer as text (RFC 4514).
    pub(super) fn issuer(&self) -> String {
        name_text(&self.issuer)
    }

    /// Returns true if the certificate's issuer and subject have the same name.
    pub(super) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Returns true if this certificate's issuer has the same name as the subject of `other`.
    pub(super) fn is_issued_by(&self, other: &Certificate) -> bool {
        self.issuer == other.subject
    }
}

/// The properties of a certificate that are needed to renew it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    /// The time from which the certificate is valid.
    pub begins: SystemTime,
    /// The time at which the certificate expires.
    pub ends: SystemTime,
    /// The host names and IP addresses for which the certificate is valid, in lower case.
    pub hosts: Vec<String>,
    /// The serial number of the certificate. Together with `authority_key`, it identifies the
    /// certificate to its certificate authority (RFC 9773, 4.1).
    pub serial: Vec<u8>,
    /// The identifier of the key that signed the certificate, or `None` if the certificate does not
    /// contain it.
    pub authority_key: Option<Vec<u8>>,
    /// The SHA-256 hash of the certificate.
    pub sha256: [u8; 32],
}

impl IssuedCertificate {
    /// Parses the first certificate in a PEM text. Returns `None` if there is none.
    pub fn read(pem: &[u8]) -> Option<IssuedCertificate> {
        let der = CertificateDer::from_pem_slice(pem).ok()?;
        let read = Certificate::parse(&der)?;
        let mut signed = Values(Values(&der).take(tag::SEQUENCE)?);
        let mut fields = Values(signed.take(tag::SEQUENCE)?);
        fields.take(tag::explicit(0));
        let serial = fields.take(tag::INTEGER)?.to_vec();
        let mut authority_key = None;
        while let Some((tag, content)) = fields.next() {
            if tag == tag::explicit(3) {
                authority_key = extension(content, AUTHORITY_KEY).and_then(|value| {
                    Some(
                        Values(Values(value).take(tag::SEQUENCE)?).take(tag::implicit(0))?.to_vec(),
                    )
                });
            }
        }
        let sha256 = digest(&SHA256, &der).as_ref().try_into().ok()?;
        let Certificate { not_before: begins, not_after: ends, hosts, .. } = read;
        Some(IssuedCertificate { begins, ends, hosts, serial, authority_key, sha256 })
    }
}

const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1D, 0x11];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1D, 0x23];

/// Returns the content of the certificate extension with the object identifier `wanted`, if it is
/// present.
fn extension<'a>(extensions: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut extensions = Values(Values(extensions).take(tag::SEQUENCE)?);
    while let Some(extension) = extensions.take(tag::SEQUENCE) {
        let mut fields = Values(extension);
        if fields.take(tag::OID)? == wanted {
            fields.take(tag::BOOLEAN);
            return fields.take(tag::OCTET_STRING);
        }
    }
    None
}

/// Returns the SHA-256 hash of a certificate, in hexadecimal.
pub(super) fn fingerprint(der: &[u8]) -> String {
    hexadecimal(digest(&SHA256, der).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the host names and IP addresses among a certificate's alternative names (RFC 5280,
/// 4.2.1.6).
fn hosts_of(extensions: &[u8]) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    let mut names = Values(Values(extension(extensions, SUBJECT_ALT_NAME)?).take(tag::SEQUENCE)?);
    while let Some((tag, name)) = names.next() {
        if tag == tag::implicit(2) {
            hosts.push(String::from_utf8_lossy(name).to_ascii_lowercase());
        } else if tag == tag::implicit(7) {
            let address = <[u8; 4]>::try_from(name).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(name).map(IpAddr::from));
            hosts.extend(address.map(|address| address.to_string()));
        }
    }
    Some(hosts)
}

/// Parses a time in a certificate from its DER tag and text. It is a `UTCTime` or a
/// `GeneralizedTime` (RFC 5280, 4.1.2.5).
fn time((tag, text): (u8, &[u8])) -> Option<SystemTime> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |bytes: &[u8]| {
        bytes.iter().try_fold(0i64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let (year, rest) = match tag {
        tag::UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (year + if year < 50 { 2000 } else { 1900 }, rest)
        }
        tag::GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, day) = (part(0)?, part(2)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + part(4)? * 3600 + part(6)? * 60 + part(8)?;
    let passed = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH.checked_sub(passed) } else { UNIX_EPOCH.checked_add(passed) }
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last day of a year.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Calls `each` for every attribute of an X.509 name. Its arguments are the attribute's type, tag
/// and value, and whether the attribute belongs to the same set as the previous attribute.
fn attributes<'a>(
    name: &'a [u8],
    mut each: impl FnMut(&'a [u8], u8, &'a [u8], bool),
) -> Option<()> {
    let mut sets = Values(Values(name).take(tag::SEQUENCE)?);
    while let Some(set) = sets.take(tag::SET) {
        let mut pairs = Values(set);
        let mut is_joined = false;
        while let Some(pair) = pairs.take(tag::SEQUENCE) {
            let mut fields = Values(pair);
            let oid = fields.take(tag::OID)?;
            let (kind, value) = fields.next()?;
            each(oid, kind, value, is_joined);
            is_joined = true;
        }
    }
    Some(())
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The short names of the attributes of X.509 names (RFC 4514, 3), and the usual short name for
/// e-mail addresses.
const SHORT_NAMES: &[(&[u8], &str)] = &[
    (COMMON_NAME, "CN"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x0A], "O"),
    (&[0x55, 0x04, 0x0B], "OU"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x09], "STREET"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 0x01, 0x19], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 0x01, 0x01], "UID"),
    (&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 0x01, 0x09, 0x01], "emailAddress"),
];

fn common_name(name: &[u8]) -> Option<String> {
    let mut found = None;
    attributes(name, |oid, kind, value, _| {
        if oid == COMMON_NAME {
            found = string(kind, value);
        }
    })?;
    found
}

/// Formats an X.509 name as text (RFC 4514), with the last part first, like `openssl x509 -nameopt
/// RFC2253`.
fn name_text(name: &[u8]) -> String {
    let mut parts: Vec<String> = Vec::new();
    // A malformed rest of the name is ignored.
    let _ = attributes(name, |oid, kind, value, is_joined| {
        let short = SHORT_NAMES
            .iter()
            .find(|(known, _)| *known == oid)
            .map(|(_, short)| (*short).to_owned());
        let text = match (&short, string(kind, value)) {
            (Some(_), Some(text)) => escaped(&text),
            _ => format!("#{}", hexadecimal(&super::der::value(kind, &[value]))),
        };
        let part = format!("{}={text}", short.unwrap_or_else(|| dotted(oid)));
        match parts.last_mut() {
            Some(last) if is_joined => *last = format!("{last}+{part}"),
            _ => parts.push(part),
        }
    });
    parts.reverse();
    parts.join(",")
}

/// Decodes a string of an X.509 name. Returns `None` for values of types other than strings.
fn string(kind: u8, value: &[u8]) -> Option<String> {
    match kind {
        tag::BMP_STRING => {
            let units: Vec<u16> =
                value.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        // UTF8String, and the ASCII types NumericString, PrintableString, T61String, IA5String and
        // VisibleString.
        tag::UTF8_STRING | 0x12 | 0x13 | 0x14 | 0x16 | 0x1A => {
            String::from_utf8(value.to_vec()).ok()
        }
        _ => None,
    }
}

/// Escapes special characters in an X.509 name (RFC 4514, 2.4), and control characters, which could
/// forge log lines.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (at, char) in text.chars().enumerate() {
        match char {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.extend(['\\', char]),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            '#' if at == 0 => out.push_str("\\#"),
            '\0'..='\x1F' | '\x7F' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\{:02X}", u32::from(char));
            }
            _ => out.push(char),
        }
    }
    out
}

/// Returns the subject and the fingerprint of a client's certificate, in the form that the
/// application receives.
pub(crate) fn client_identity(der: &[u8]) -> (String, String) {
    (Certificate::parse(der).map(|it| it.subject()).unwrap_or_default(), fingerprint(der))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn parses_utc_time_and_generalized_time() {
        assert_eq!(time((tag::UTC_TIME, b"700101000000Z")), Some(at(0)));
        assert_eq!(time((tag::UTC_TIME, b"000229123456Z")), Some(at(951_827_696)));
        assert_eq!(time((tag::UTC_TIME, b"491231235959Z")), Some(at(2_524_607_999)));
        assert_eq!(time((tag::GENERALIZED_TIME, b"20500101000000Z")), Some(at(2_524_608_000)));
        assert_eq!(time((tag::GENERALIZED_TIME, b"99991231235959Z")), Some(at(253_402_300_799)));
        assert!(time((tag::UTC_TIME, b"500101000000Z")).is_some_and(|time| time < UNIX_EPOCH));
        for wrong in [
            &b"20500101000000"[..],
            b"2050010100000Z",
            b"20501301000000Z",
            b"2050010100000xZ",
            b"Z",
            b"",
        ] {
            assert_eq!(time((tag::GENERALIZED_TIME, wrong)), None);
        }
        assert_eq!(time((tag::INTEGER, b"700101000000Z")), None);
    }

    #[test]
    fn reads_renewal_identifiers_of_a_certificate() {
        let pem = std::fs::read(rookery_test_support::tls_file("localhost.pem"));
        let issued = IssuedCertificate::read(&pem.unwrap()).unwrap();
        assert!(issued.begins < issued.ends && issued.hosts.contains(&"localhost".to_owned()));
        assert!(!issued.serial.is_empty());
        assert!(issued.authority_key.is_some_and(|key| key.len() == 20));
        assert_eq!(
            IssuedCertificate::read(
                b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
            ),
            None
        );
        assert_eq!(IssuedCertificate::read(b""), None);
    }

    #[test]
    fn formats_names_per_rfc4514() {
        let pair = |oid: &[u8], kind, text: &[u8]| {
            let pair = [
                super::super::der::value(tag::OID, &[oid]),
                super::super::der::value(kind, &[text]),
            ];
            super::super::der::value(tag::SEQUENCE, &[&pair.concat()])
        };
        let set = |pairs: &[Vec<u8>]| super::super::der::value(tag::SET, &[&pairs.concat()]);
        let name = super::super::der::value(
            tag::SEQUENCE,
            &[&[
                set(&[pair(&[0x55, 4, 6], 0x13, b"DE")]),
                set(&[
                    pair(&[0x55, 4, 10], tag::UTF8_STRING, "Bäcker, Söhne".as_bytes()),
                    pair(&[0x55, 4, 5], 0x13, b"7"),
                ]),
                set(&[pair(COMMON_NAME, tag::BMP_STRING, &[0, b'#', 0, b'a', 0, b'\n', 0, b' '])]),
            ]
            .concat()],
        );
        assert_eq!(name_text(&name), "CN=\\#a\\0A\\ ,O=Bäcker\\, Söhne+2.5.4.5=#130137,C=DE");
        assert_eq!(common_name(&name).as_deref(), Some("#a\n "));
    }

    #[test]
    fn rejects_der_that_is_no_certificate() {
        assert!(Certificate::parse(b"").is_none());
        assert!(Certificate::parse(&[0x30, 0]).is_none());
        assert!(Certificate::parse(&[0x30; 100]).is_none());
    }
}
