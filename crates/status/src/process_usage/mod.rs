//! Functions that read from the system what processes use: memory, processor time and descriptors.
//!
//! - On Linux, from `/proc`. Descendants of a process count.
//! - On macOS and Windows, by system calls. Only the process itself counts. macOS does not report
//!   the processor time of a single thread.
//! - On other systems, nothing is known.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_vendor = "apple", path = "apple.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(not(any(target_os = "linux", target_vendor = "apple", windows)), path = "none.rs")]
mod system;

pub(crate) use self::system::open_descriptors;
#[cfg(target_os = "linux")]
pub use self::system::own_memory_beyond;
pub use self::system::{own_memory, processor_time, thread_time};

/// The id of a process, as Unix systems and R have it. It is also large enough for those of
/// Windows, which are multiples of four and reused.
pub type Pid = i32;

/// Returns the id of this process.
pub fn own_pid() -> Pid {
    Pid::try_from(std::process::id()).unwrap_or(Pid::MAX)
}
