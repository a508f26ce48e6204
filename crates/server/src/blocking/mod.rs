//! Operations that may block, and that therefore never run on the I/O thread, and variants of file
//! operations that do not block.

pub(crate) mod blocking_task;
pub(crate) mod file_state;
#[cfg(target_os = "linux")]
pub(crate) mod nonblocking_file;
#[cfg(not(target_os = "linux"))]
#[path = "nonblocking_file_fallback.rs"]
pub(crate) mod nonblocking_file;

pub(crate) mod unnamed_file;
