//! Loads a certificate with its private key, checks that both can be used, and warns about likely
//! mistakes, such as a key file that other users can read.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use httpdate::fmt_http_date;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::certificate::Certificate;
use super::pem::Pem;
use super::settings::CertificatePair;
use super::tls_error::{TlsError, TlsPart};

/// The remaining validity of a certificate below which a warning is logged. If the total validity
/// of the certificate is less than 84 days, a sixth of it is used instead.
// A certificate of 90 days is usually renewed 30 days before it expires, so its renewal has failed
// for about two weeks when the warning is logged.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// A certificate with its key, in the form that rustls uses.
pub(super) struct Identity {
    pub(super) key: Arc<CertifiedKey>,
    /// The host names and IP addresses for which the certificate is valid.
    pub(super) hosts: Vec<String>,
    pub(super) validity: Validity,
}

/// A certificate with which a server serves HTTPS, as reports show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedCertificate {
    /// The host names and IP addresses for which the certificate is valid, in lower case.
    pub hosts: Vec<String>,
    /// The time at which the certificate expires.
    pub ends: SystemTime,
}

/// The period for which a certificate is valid, its hosts, and the name of the certificate's file.
#[derive(Debug)]
pub(super) struct Validity {
    name: String,
    hosts: Vec<String>,
    begins: SystemTime,
    pub(super) ends: SystemTime,
}

impl Validity {
    pub(super) fn served(&self) -> ServedCertificate {
        ServedCertificate { hosts: self.hosts.clone(), ends: self.ends }
    }

    /// Passes warnings to `warn` if the certificate has expired, expires soon or is not valid yet.
    pub(super) fn warn(&self, now: SystemTime, warn: &mut dyn FnMut(String)) {
        let Validity { name, begins, ends, .. } = self;
        let date = |time: SystemTime| fmt_http_date(clamp_to_printable(time));
        if *ends < now {
            warn(format!(
                "the certificate in {name} expired on {}; clients reject it",
                date(*ends)
            ));
        } else if *ends
            < now + EXPIRY_WARNING.min(ends.duration_since(*begins).unwrap_or_default() / 6)
        {
            warn(format!("the certificate in {name} expires on {}; renew it", date(*ends)));
        }
        if *begins > now {
            let begins = date(*begins);
            warn(format!(
                "the certificate in {name} is not valid before {begins}; is the clock right?"
            ));
        }
    }
}

impl Identity {
    /// Reads a certificate and its key from their sources, and passes warnings about them to
    /// `warn`.
    pub(super) fn read(
        pair: &CertificatePair,
        provider: &CryptoProvider,
        warn: &mut dyn FnMut(String),
    ) -> Result<Identity, TlsError> {
        let chain = pair.certificate.certificates(TlsPart::Certificate)?;
        let mut certificates = Vec::new();
        for der in &chain {
            let read = Certificate::parse(der);
            certificates.push(read.ok_or_else(|| {
                pair.certificate.malformed(TlsPart::Certificate, &"it is not an X.509 certificate")
            })?);
        }
        let key = pair.key.key()?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::Mismatch { certificate: pair.certificate.name(), key: pair.key.name() }
            }
            Error::InvalidCertificate(_) => {
                pair.certificate.malformed(TlsPart::Certificate, &error)
            }
            _ => pair.key.malformed(TlsPart::Key, &error),
        })?;
        warn_about_chain(&pair.certificate, &certificates, warn);
        warn_about_permissions(&pair.key, warn);
        let Certificate { hosts, not_before: begins, not_after: ends, .. } =
            certificates.swap_remove(0);
        let validity =
            Validity { name: pair.certificate.name(), hosts: hosts.clone(), begins, ends };
        validity.warn(SystemTime::now(), warn);
        Ok(Identity { key: Arc::new(key), hosts, validity })
    }
}

/// Limits a time to dates with a year of four digits, which can be printed.
fn clamp_to_printable(time: SystemTime) -> SystemTime {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    time.clamp(SystemTime::UNIX_EPOCH, last)
}

fn warn_about_chain(from: &Pem, chain: &[Certificate], warn: &mut dyn FnMut(String)) {
    let name = from.name();
    if let [only] = chain {
        if !only.is_self_issued() {
            warn(format!(
                "{name} contains only the server's own certificate: unless clients trust {} as \
                 a root, append the intermediate certificates",
                only.issuer()
            ));
        }
    }
    for (at, pair) in chain.windows(2).enumerate() {
        if !pair[0].is_issued_by(&pair[1]) {
            warn(format!(
                "the chain in {name} is out of order: certificate {} must be followed \
                 by that of {}, not by that of {}",
                at + 1,
                pair[0].issuer(),
                pair[1].subject()
            ));
            return;
        }
    }
}

fn warn_about_permissions(from: &Pem, warn: &mut dyn FnMut(String)) {
    let Some(metadata) = from.path().and_then(|path| std::fs::metadata(path).ok()) else { return };
    let Some(mode) = rookery_system::file::mode(&metadata) else { return };
    // A key that is readable by a group causes no warning, because Debian's group ssl-cert gives
    // servers access in this way.
    let who = match mode {
        _ if mode & 0o004 != 0 => "can be read by everybody",
        _ if mode & 0o022 != 0 => "can be changed by others",
        _ => return,
    };
    let name = from.name();
    warn(format!("the key in {name} {who} (mode {mode:04o}): chmod g-w,o= {name}"));
}
