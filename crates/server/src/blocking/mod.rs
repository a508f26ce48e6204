//! What may block, and so never happens on the I/O thread; and how to ask for less.

pub(crate) mod file_state;
pub(crate) mod job;
#[cfg(target_os = "linux")]
pub(crate) mod nowait;
#[cfg(not(target_os = "linux"))]
#[path = "nowait_elsewhere.rs"]
pub(crate) mod nowait;
pub(crate) mod unnamed_file;
