//! The errors that can occur when a listener is started.

use std::fmt;
use std::io;

use crate::net::descriptor;

/// An error that occurred when a listener was started.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// The address of the listener could not be bound, for example because it is in use, does not
    /// belong to this machine, or is not permitted.
    Bind {
        /// The address that could not be bound, or a description such as `the inherited sockets`.
        address: String,
        /// The error that the operating system returned.
        source: io::Error,
    },
    /// The I/O thread could not be started, or ended before the listener was started.
    Thread(io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Bind { address, source } => match source.kind() {
                io::ErrorKind::AddrInUse => {
                    // The first words are those of libuv, because scripts match them.
                    write!(
                        f,
                        "address already in use: {address} is used by another server; \
                         stop it, or choose another port"
                    )
                }
                io::ErrorKind::PermissionDenied => {
                    write!(
                        f,
                        "permission denied: this user may not listen on {address}; \
                         choose a port above 1023"
                    )
                }
                io::ErrorKind::AddrNotAvailable => {
                    write!(
                        f,
                        "address not available: {address} does not belong to this \
                         machine; use 127.0.0.1 or 0.0.0.0"
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
