//! The TLS configuration of WebSocket clients, and the root certificates that they trust.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The TLS configuration that is shared by all clients with the same root certificates.
pub(crate) type Tls = Arc<ClientConfig>;

/// The files in which systems store their trusted root certificates: Debian (`ca-certificates`),
/// Fedora, `OpenSUSE`, Alpine.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The environment variable that names a file of root certificates to use instead of the system's
/// usual file. OpenSSL reads this variable as well.
const VARIABLE: &str = "SSL_CERT_FILE";

/// The maximum number of bytes that are read from a file of root certificates. A bundle of all
/// public root certificates has 250 KiB.
const FILE_BYTES: u64 = 4 << 20;

/// The root certificates that a client trusts for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// The root certificates of the system: those in the file that `SSL_CERT_FILE` names, or
    /// otherwise in the system's usual file.
    System,
    /// Only the given root certificates, as PEM text or as the path of a PEM file.
    Custom(String),
}

/// The reason why root certificates cannot be used.
#[derive(Debug)]
pub enum RootsError {
    /// None of the usual files with the system's root certificates exists.
    NoSystem,
    /// The file with the root certificates cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The given file or text contains no certificate.
    Empty(String),
}

/// Returns the TLS configuration for an HTTP/1.1 client that trusts the root certificates in
/// `roots`.
///
/// # Errors
/// Returns a [`RootsError`] if there are no root certificates or they cannot be read.
pub fn tls_config(roots: &Roots) -> Result<Arc<ClientConfig>, RootsError> {
    let mut store = RootCertStore::empty();
    let (certificates, name) = match roots {
        Roots::System => system()?,
        Roots::Custom(text) if text.contains("-----BEGIN ") => {
            (certificates(text.as_bytes()), "the text that was given".to_owned())
        }
        Roots::Custom(path) => (certificates(&read(Path::new(path))?), path.clone()),
    };
    // A system's bundle may contain certificates that are too old to be parsed.
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(RootsError::Empty(name));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has what TLS 1.2 and 1.3 need")
        .with_root_certificates(store)
        .with_no_client_auth();
    // The opening handshake of RFC 6455 requires HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn system() -> Result<(Vec<CertificateDer<'static>>, String), RootsError> {
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    let usual = || SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
    let path = named.or_else(usual).ok_or(RootsError::NoSystem)?;
    Ok((certificates(&read(&path)?), path.display().to_string()))
}

fn read(path: &Path) -> Result<Vec<u8>, RootsError> {
    let unreadable = |error| RootsError::Unreadable(path.to_owned(), error);
    // Opening a FIFO that has no writer would block.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other("it is not a file")));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    Ok(bytes)
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

impl fmt::Display for RootsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootsError::NoSystem => write!(
                f,
                "this system has no file with trusted CA certificates (on Debian, \
                 install ca-certificates), and {VARIABLE} is not set"
            ),
            RootsError::Unreadable(path, error) => {
                write!(f, "{} cannot be read: {error}", path.display())
            }
            RootsError::Empty(name) => {
                write!(f, "{name} contains no PEM certificate (\"-----BEGIN CERTIFICATE-----\")")
            }
        }
    }
}

impl std::error::Error for RootsError {}
