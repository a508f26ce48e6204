//! The connection of a worker's server to its supervisor.

mod announcements;
pub(super) mod public_listeners;
pub(super) mod supervision;
