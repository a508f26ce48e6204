//! A reader of certificates and private keys in PEM (RFC 7468), from a file or a text, with precise
//! errors.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::tls_error::{TlsError, TlsPart};

/// The maximum number of bytes that are read from a PEM file. For comparison, a bundle of all
/// public root certificates has 250 KiB.
const FILE_BYTES: u64 = 4 << 20;

/// The byte order mark that editors on Windows write at the start of a text.
const BYTE_ORDER_MARK: &str = "\u{FEFF}";

/// The source of a certificate or key in PEM: a file, which is read again at each reload, or a
/// text.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The path of a PEM file. A relative path is made absolute once, when TLS is set up.
    File(PathBuf),
    /// The PEM text itself, for example from a secret store.
    Text(String),
}

impl Pem {
    /// Interprets `text` as PEM if it contains the beginning of a PEM header line (RFC 7468, 2),
    /// even of an invalid one, and otherwise as a path. A malformed key is thus not mistaken for a
    /// path, which log messages would show.
    pub fn from_text_or_path(text: &str) -> Pem {
        if text.contains("-----BEGIN ") {
            Pem::Text(text.to_owned())
        } else {
            Pem::File(text.into())
        }
    }

    /// Returns the path of the PEM file, or `None` if the source is a text.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Pem::File(path) => Some(path),
            Pem::Text(_) => None,
        }
    }

    /// Returns the SHA-256 hash of the PEM content, or `None` if the file cannot be read.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        // The part only matters for errors, which are not used here.
        let bytes = self.bytes(TlsPart::Certificate).ok()?;
        digest(&SHA256, &bytes).as_ref().try_into().ok()
    }

    /// Makes the path of the PEM file absolute, if it is relative.
    pub(super) fn make_paths_absolute(&mut self) {
        if let Pem::File(path) = self {
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute;
            }
        }
    }

    /// Returns the name by which log messages refer to this PEM source.
    pub(super) fn name(&self) -> String {
        match self {
            Pem::File(path) => path.display().to_string(),
            Pem::Text(_) => "the text that was given".to_owned(),
        }
    }

    /// Returns all certificates in the PEM content, in order.
    pub(super) fn certificates(
        &self,
        part: TlsPart,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let bytes = self.bytes(part)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        match found {
            Ok(found) if found.is_empty() => Err(self.missing_section_error(part, &bytes)),
            Ok(found) => Ok(found),
            Err(error) => Err(self.malformed(part, &error)),
        }
    }

    /// Returns the first private key in the PEM content.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let bytes = self.bytes(TlsPart::Key)?;
        // After this header of OpenSSL's own encryption (RFC 1421), the base64 text is not a valid
        // key.
        if contains(&bytes, b"Proc-Type: 4,ENCRYPTED") {
            return Err(TlsError::Encrypted { from: self.name() });
        }
        match PrivateKeyDer::from_pem_slice(&bytes) {
            Ok(key) => Ok(key),
            Err(rustls::pki_types::pem::Error::NoItemsFound) => {
                if contains(&bytes, b"BEGIN ENCRYPTED PRIVATE KEY") {
                    return Err(TlsError::Encrypted { from: self.name() });
                }
                Err(self.missing_section_error(TlsPart::Key, &bytes))
            }
            Err(error) => Err(self.malformed(TlsPart::Key, &error)),
        }
    }

    fn bytes(&self, part: TlsPart) -> Result<Vec<u8>, TlsError> {
        let path = match self {
            Pem::Text(text) => return Ok(text.trim_start_matches(BYTE_ORDER_MARK).into()),
            Pem::File(path) => path,
        };
        let unreadable =
            |source: io::Error| TlsError::Unreadable { part, from: self.name(), source };
        // Opening a FIFO without a writer would block, and a folder can be opened but not read.
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(TlsError::IsDirectory { part, from: self.name() });
        }
        if !metadata.is_file() {
            return Err(self.malformed(part, &"it is not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        // With the mark, the first header line would not be recognized, and the first certificate
        // would be missed.
        if bytes.starts_with(BYTE_ORDER_MARK.as_bytes()) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(bytes)
    }

    /// Returns the error for PEM content in which the wanted certificate or key is missing.
    fn missing_section_error(&self, part: TlsPart, bytes: &[u8]) -> TlsError {
        // DER and PKCS#12 begin with a sequence. PEM is text.
        if bytes.first() == Some(&0x30) {
            return TlsError::Binary { part, from: self.name() };
        }
        let text = String::from_utf8_lossy(bytes);
        let labels = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
        let mut sections: Vec<String> = Vec::new();
        for label in labels.take(100) {
            if !sections.iter().any(|known| known == label) {
                sections.push(label.to_owned());
            }
        }
        TlsError::MissingSection { part, from: self.name(), sections }
    }

    pub(super) fn malformed(&self, part: TlsPart, reason: &dyn fmt::Display) -> TlsError {
        TlsError::Malformed { part, from: self.name(), reason: reason.to_string() }
    }
}

/// Formats the source of the PEM content. The text itself is never shown, because it may be a key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.name())
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
