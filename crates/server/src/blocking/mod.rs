//! Operations that may block, which run on other threads than the I/O thread, and file operations
//! that fail instead of blocking.

pub(crate) mod blocking_task;
pub(crate) mod file_state;
#[cfg(target_os = "linux")]
pub(crate) mod nonblocking_file;
#[cfg(not(target_os = "linux"))]
#[path = "nonblocking_file_fallback.rs"]
pub(crate) mod nonblocking_file;

pub(crate) mod unnamed_file;
