//! Operations that may block and therefore run on threads other than the I/O thread, and variants
//! of file operations that never block.

pub(crate) mod blocking_task;
pub(crate) mod file_state;
#[cfg(target_os = "linux")]
pub(crate) mod nonblocking_file;
#[cfg(not(target_os = "linux"))]
#[path = "nonblocking_file_fallback.rs"]
pub(crate) mod nonblocking_file;

pub(crate) mod unnamed_file;
