//! The connection of a worker's server to its supervisor.

#[cfg(unix)]
mod announcements;
pub(super) mod request;
#[cfg(unix)]
pub(super) mod supervision;
#[cfg(not(unix))]
#[path = "none.rs"]
pub(super) mod supervision;
#[cfg_attr(not(unix), path = "worker_rings/none.rs")]
pub(super) mod worker_rings;
