//! The connection of a worker's server to its supervisor. Workers exist only on Linux.

#[cfg(target_os = "linux")]
mod announcements;
#[cfg(not(target_os = "linux"))]
pub(super) mod none;
pub(super) mod request;
#[cfg(target_os = "linux")]
pub(super) mod supervision;
#[cfg(target_os = "linux")]
pub(super) mod worker_rings;

#[cfg(not(target_os = "linux"))]
pub(super) use self::{none as supervision, none as worker_rings};
