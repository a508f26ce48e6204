//! The commands of the program except `serve` and `dev`.

pub(crate) mod check;
mod check_app;
pub(crate) mod config;
pub(crate) mod live;
mod local_socket;
pub(crate) mod new_app;
pub(crate) mod profile;
pub(crate) mod status;
mod trend;
pub(crate) mod version;
pub(crate) mod watch;
