//! PEM (RFC 7468), from files or text: what is wanted of it, and what is wrong with it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::tls_error::{TlsError, TlsPart};

/// Bytes of a file that are read: a bundle of all public roots has 250 KiB.
const FILE_BYTES: u64 = 4 << 20;

/// What editors on Windows put before text.
const BYTE_ORDER_MARK: &str = "\u{FEFF}";

/// Where PEM is: in a file, which is looked at again for a reload, or here.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The path of a file. A relative one is looked up once, when TLS is set up.
    File(PathBuf),
    /// The text itself, as from a vault.
    Text(String),
}

impl Pem {
    /// What has a line with which PEM begins is PEM, whatever is before it (RFC 7468, 2); anything else is a path. No path
    /// has one, and a key that was taken for a path would be in messages.
    pub fn from_text_or_path(text: &str) -> Pem {
        if text.contains("-----BEGIN ") {
            Pem::Text(text.to_owned())
        } else {
            Pem::File(text.into())
        }
    }

    /// The path, when it is a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Pem::File(path) => Some(path),
            Pem::Text(_) => None,
        }
    }

    /// The SHA-256 of what it has; `None` where that cannot be read.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        // Which part it is makes a difference to errors alone.
        let bytes = self.bytes(TlsPart::Certificate).ok()?;
        digest(&SHA256, &bytes).as_ref().try_into().ok()
    }

    /// The same wherever the process goes.
    pub(super) fn make_paths_absolute(&mut self) {
        if let Pem::File(path) = self {
            if let Ok(absolute) = std::path::absolute(&*path) {
                *path = absolute;
            }
        }
    }

    /// How it is named in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Pem::File(path) => path.display().to_string(),
            Pem::Text(_) => "the text that was given".to_owned(),
        }
    }

    /// The certificates in it, in their order.
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

    /// The first private key in it.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let bytes = self.bytes(TlsPart::Key)?;
        // With the header of OpenSSL's own encryption (RFC 1421) what follows is base64, and no key.
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
        // A FIFO that nobody writes to would be waited for; a folder can be opened, and not be read.
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
        // With it the first line would begin nothing: the first certificate would be passed over.
        if bytes.starts_with(BYTE_ORDER_MARK.as_bytes()) {
            bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(bytes)
    }

    /// It has none of what was wanted.
    fn missing_section_error(&self, part: TlsPart, bytes: &[u8]) -> TlsError {
        // A sequence, with which DER and PKCS#12 begin; PEM is text.
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

/// Without the text, which may be a key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.name())
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
