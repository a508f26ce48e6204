//! System calls that the standard library does not cover. Other crates of the workspace share them,
//! so that each unsafe call is written and justified only once.
//!
//! - [`blocking`]: calls that may block, on a few threads of their own
//! - [`signals`]: threads that never run a signal handler
//! - [`fork`]: descriptors that a forked child must close
//! - [`socket`]: the handle of a socket, by one name on all systems
//! - [`file`](mod@file): files that are read at an offset, and private files and folders
//! - [`disk`]: the free space of a file system
//! - [`clock`]: a clock that processes share
//! - [`memory`](mod@memory): the memory of the machine
//! - [`random`]: numbers that other processes cannot guess
//!
//! On Unix systems only:
//! - `descriptor`: properties of descriptors and sockets
//!
//! On Linux only, for a supervisor and its workers:
//! - `packets`: sockets that preserve message boundaries
//! - `descriptor_channel`: sockets that pass descriptors to another process
//! - `content_file`: files by which bytes are passed to another process
//! - `shared_memory`: memory of a fixed size that processes share
//! - `shared_wait`: waiting for another process (futex)
//! - `wake_socket`: sockets that wake another process
//!
//! Where systems differ, a module has one file for each kind of system, with the same functions.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

pub mod blocking;
pub mod clock;
#[cfg(target_os = "linux")]
pub mod content_file;
#[cfg(unix)]
pub mod descriptor;
#[cfg(target_os = "linux")]
pub mod descriptor_channel;
pub mod disk;
pub mod file;
#[cfg(unix)]
#[path = "fork/unix.rs"]
pub mod fork;
#[cfg(not(unix))]
#[path = "fork/none.rs"]
pub mod fork;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod packets;
pub mod random;
#[cfg(target_os = "linux")]
pub mod shared_memory;
#[cfg(target_os = "linux")]
pub mod shared_wait;
pub mod signals;
pub mod socket;
#[cfg(target_os = "linux")]
pub mod wake_socket;

/// Converts the result of a system call, which is -1 on failure, to a `Result`.
#[cfg(unix)]
fn checked(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
