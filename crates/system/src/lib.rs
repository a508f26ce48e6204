//! System calls that the standard library does not cover. Other crates of the workspace share them,
//! so that each unsafe call is written and justified only once.
//!
//! - [`signals`]: threads that never run a signal handler
//! - [`fork`]: descriptors that a forked child must close
//! - [`descriptor`]: properties of descriptors and sockets
//! - [`packets`]: Unix sockets that preserve message boundaries
//! - [`shared_memory`]: memory of a fixed size that processes share

pub mod descriptor;
pub mod fork;
pub mod packets;
pub mod shared_memory;
pub mod signals;

use std::io;

/// Converts the result of a system call, which is -1 on failure, to a `Result`.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns the error `Unsupported`, for functions that work only on Linux.
#[cfg(not(target_os = "linux"))]
fn unsupported<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this feature needs Linux"))
}
