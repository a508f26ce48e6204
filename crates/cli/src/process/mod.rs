//! The process that runs this program: its signals, its allocator, and its duties as PID 1.

pub(crate) mod allocator;
#[cfg(target_os = "linux")]
pub(crate) mod pid1;
pub(crate) mod signals;
