//! Files whose close may block and therefore runs on a thread other than the I/O thread, and
//! variants of file operations that never block.
//!
//! Operations that may block, such as file operations, spooling and compression, are started by
//! [`rookery_system::blocking::start`]. The operation itself, and not its client's connection, owns
//! the [`Charge`](rookery_exchange::Charge) that counts the operation's memory against the memory
//! budget. If a disk does not respond, the operation may exist for much longer than the connection.

pub(crate) mod file_state;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod nonblocking_file;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
#[path = "nonblocking_file_fallback.rs"]
pub(crate) mod nonblocking_file;

pub(crate) mod unnamed_file;
