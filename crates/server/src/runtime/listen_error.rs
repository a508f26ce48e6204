//! Why a listener could not be started.

use std::fmt;
use std::io;

use crate::net::descriptor;

/// Why a listener could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is in use, or not this machine's, or not allowed.
    Bind {
        /// What was asked for.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The I/O thread could not be started, or ended before it listened.
    Thread(io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Bind { address, source } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    // Scripts look for these words, which are libuv's.
                    write!(
                        f,
                        "address already in use: another server listens on {address}; stop it, or choose another port"
                    )
                }
                io::ErrorKind::PermissionDenied => {
                    write!(
                        f,
                        "permission denied: this user may not listen on {address}; choose a port above 1023"
                    )
                }
                io::ErrorKind::AddrNotAvailable => {
                    write!(
                        f,
                        "address not available: {address} does not belong to this machine; use 127.0.0.1 or 0.0.0.0"
                    )
                }
                _ => write!(f, "cannot listen on {address}: {source}"),
            },
            ListenError::Thread(source) => {
                write!(f, "cannot start the I/O thread: {source}")?;
                if descriptor::is_exhausted(source) {
                    f.write_str(
                        ": close files or connections, or raise the limit on them (`ulimit -n`)",
                    )?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::Bind { source, .. } | ListenError::Thread(source) => Some(source),
        }
    }
}
