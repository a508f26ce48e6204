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
//! - [`restart_backoff`]: the pauses before a process that has ended is started again
//! - [`random`]: numbers that other processes cannot guess
//!
//! On Unix systems only:
//! - `descriptor`: properties of descriptors and sockets
//!
//! On Linux only:
//! - `linux`: what a supervisor and its workers share
//!
//! Where systems differ, a module has one file for each kind of system, with the same functions.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod blocking;
pub mod clock;
#[cfg(unix)]
pub mod descriptor;
pub mod disk;
pub mod file;
#[cfg(unix)]
#[path = "fork/unix.rs"]
pub mod fork;
#[cfg(not(unix))]
#[path = "fork/none.rs"]
pub mod fork;
#[cfg(target_os = "linux")]
pub mod linux;
pub mod memory;
pub mod random;
pub mod restart_backoff;
pub mod signals;
pub mod socket;

/// Locks a mutex even if a panic has poisoned it, for data that no panic leaves inconsistent.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
