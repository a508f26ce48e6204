//! The errors in certificates, keys and other TLS settings. Each message names a remedy.

use std::fmt;
use std::io;

/// The part of the TLS settings to which an error refers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsPart {
    /// The server's certificate, with its chain.
    Certificate,
    /// The private key of the server's certificate.
    Key,
    /// The certificate authorities that may issue client certificates.
    ClientCa,
}

impl fmt::Display for TlsPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsPart::Certificate => "the certificate",
            TlsPart::Key => "the key",
            TlsPart::ClientCa => "the CA certificates for clients",
        })
    }
}

/// An error in setting up or reloading TLS. In most variants, `from` names the affected certificate
/// or key: by the path of its file, or by a note that it was given as text.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The TLS settings contain no certificate.
    NoCertificate,
    /// The file of a certificate or key does not exist or cannot be read.
    Unreadable {
        /// The part of the TLS settings that cannot be read.
        part: TlsPart,
        /// The path of the unreadable file.
        from: String,
        /// The error that the operating system returned.
        source: io::Error,
    },
    /// The path of a certificate or key names a folder instead of a file.
    IsDirectory {
        /// The part of the TLS settings to which the path belongs.
        part: TlsPart,
        /// The path of the folder that was given in place of a certificate or key file.
        from: String,
    },
    /// A PEM file or text does not contain the expected certificate or key.
    MissingSection {
        /// The part of the TLS settings that is missing in the PEM file or text.
        part: TlsPart,
        /// The path of the PEM file, or a note that PEM text was given instead of a file.
        from: String,
        /// The labels of the PEM sections that were found instead, such as `CERTIFICATE`.
        sections: Vec<String>,
    },
    /// The private key is encrypted with a password.
    Encrypted {
        /// The path of the key file, or a note that the key was given as text.
        from: String,
    },
    /// A certificate or key is in the binary format DER or PKCS#12 instead of PEM.
    Binary {
        /// The part of the TLS settings that is in a binary format.
        part: TlsPart,
        /// The path of the binary file.
        from: String,
    },
    /// The PEM of a certificate or key is malformed, or what it encodes is not a valid certificate
    /// or key.
    Malformed {
        /// The part of the TLS settings that is malformed.
        part: TlsPart,
        /// The path of the malformed file, or a note that PEM text was given instead of a file.
        from: String,
        /// A description of what is wrong with the certificate or key.
        reason: String,
    },
    /// The private key does not belong to the certificate.
    Mismatch {
        /// The path of the certificate file, or a note that the certificate was given as text.
        certificate: String,
        /// The path of the key file, or a note that the key was given as text.
        key: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::NoCertificate => f.write_str("TLS needs a certificate and its key"),
            TlsError::Unreadable { part, from, source }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                write!(f, "{part} cannot be read: there is no file {from}")
            }
            TlsError::Unreadable { part, from, source } => {
                write!(f, "{part} cannot be read: {from}: {source}")?;
                #[cfg(unix)]
                {
                    let user = rustix::process::geteuid().as_raw();
                    write!(f, "; this process runs as the user with the id {user}")?;
                }
                Ok(())
            }
            TlsError::IsDirectory { part, from } => {
                write!(f, "{part} cannot be read: {from} is a folder; name the file in it")
            }
            TlsError::MissingSection { part, from, sections } => {
                missing_section(f, *part, from, sections)
            }
            TlsError::Encrypted { from } => write!(
                f,
                "the key in {from} is encrypted; give its password, or write it without one: \
                 openssl pkey -in {from} -out key.pem"
            ),
            TlsError::Binary { part: TlsPart::Key, from } => write!(
                f,
                "the key in {from} is not PEM but DER or PKCS#12; to make it PEM: \
                 openssl pkey -inform DER -in {from} -out key.pem, or \
                 openssl pkcs12 -in {from} -nocerts -nodes -out key.pem"
            ),
            TlsError::Binary { part, from } => write!(
                f,
                "{part} in {from} is not PEM but DER or PKCS#12; to make it PEM: \
                 openssl x509 -inform DER -in {from} -out cert.pem, or \
                 openssl pkcs12 -in {from} -nokeys -out cert.pem"
            ),
            TlsError::Malformed { part, from, reason } => {
                write!(f, "{part} in {from} is malformed: {reason}")
            }
            TlsError::Mismatch { certificate, key } => write!(
                f,
                "the key in {key} is not that of the certificate in {certificate}: has \
                 only one of the two been renewed?"
            ),
        }
    }
}

fn missing_section(
    f: &mut fmt::Formatter<'_>,
    part: TlsPart,
    from: &str,
    sections: &[String],
) -> fmt::Result {
    let wanted = if part == TlsPart::Key { "private key" } else { "certificate" };
    write!(f, "{from} contains no {wanted}")?;
    if sections.is_empty() {
        return f.write_str(": it is not PEM, which has lines such as -----BEGIN CERTIFICATE-----");
    }
    write!(f, ", but: {}", sections.join(", "))?;
    let has = |label: &str| sections.iter().any(|section| section.ends_with(label));
    match part {
        TlsPart::Certificate if has("PRIVATE KEY") => {
            f.write_str("; have certificate and key been swapped?")
        }
        TlsPart::Key if has("CERTIFICATE") => {
            f.write_str("; have certificate and key been swapped?")
        }
        _ => Ok(()),
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TlsError::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}
