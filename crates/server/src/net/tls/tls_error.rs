//! Why a certificate or a key cannot be used, each with its remedy.

use std::fmt;
use std::io;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsPart {
    /// The certificate, with its chain.
    Certificate,
    /// The private key.
    Key,
    /// The certificates that sign those of clients.
    ClientCa,
}

impl fmt::Display for TlsPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsPart::Certificate => "the certificate",
            TlsPart::Key => "the key",
            TlsPart::ClientCa => "the certificates for clients",
        })
    }
}

/// Why TLS cannot be set up, or not be set up anew. `from` is the path as it was given, or says that it was text.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// No certificate was given.
    NoCertificate,
    /// A file that is not there, or may not be read.
    Unreadable {
        /// Which of the two.
        part: TlsPart,
        /// Where it was looked for.
        from: String,
        /// What the system said.
        source: io::Error,
    },
    /// A folder in place of a file.
    IsDirectory {
        /// Which of the two.
        part: TlsPart,
        /// Where it was looked for.
        from: String,
    },
    /// A file without what was wanted.
    MissingSection {
        /// Which of the two.
        part: TlsPart,
        /// Where it was looked for.
        from: String,
        /// The labels of the sections that it has instead.
        sections: Vec<String>,
    },
    /// A key that needs a password.
    Encrypted {
        /// Where it was looked for.
        from: String,
    },
    /// DER or PKCS#12 in place of PEM.
    Binary {
        /// Which of the two.
        part: TlsPart,
        /// Where it was looked for.
        from: String,
    },
    /// PEM that cannot be read, or holds what is no certificate or no key.
    Malformed {
        /// Which of the two.
        part: TlsPart,
        /// Where it was looked for.
        from: String,
        /// What is wrong.
        reason: String,
    },
    /// The key is another certificate's.
    Mismatch {
        /// Where the certificate came from.
        certificate: String,
        /// Where the key came from.
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
                // SAFETY: asks, and touches no memory.
                let user = unsafe { libc::geteuid() };
                write!(
                    f,
                    "{part} cannot be read: {from}: {source}; this process runs as the user with the id {user}"
                )
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
                 openssl pkey -inform DER -in {from} -out key.pem, or openssl pkcs12 -in {from} -nocerts -nodes -out key.pem"
            ),
            TlsError::Binary { part, from } => write!(
                f,
                "{part} in {from} is not PEM but DER or PKCS#12; to make it PEM: \
                 openssl x509 -inform DER -in {from} -out cert.pem, or openssl pkcs12 -in {from} -nokeys -out cert.pem"
            ),
            TlsError::Malformed { part, from, reason } => {
                write!(f, "{part} in {from} is malformed: {reason}")
            }
            TlsError::Mismatch { certificate, key } => write!(
                f,
                "the key in {key} is not that of the certificate in {certificate}: has only one of the two been renewed?"
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
