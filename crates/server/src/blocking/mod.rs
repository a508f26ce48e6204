//! Operations that may block and therefore run on threads other than the I/O thread, and variants
//! of file operations that never block.

pub(crate) mod blocking_task;
pub(crate) mod file_state;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) mod nonblocking_file;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
#[path = "nonblocking_file_fallback.rs"]
pub(crate) mod nonblocking_file;

pub(crate) mod unnamed_file;
