//! The parts of systemd's protocols that a service needs: readiness notification and the watchdog
//! (`sd_notify(3)`), and socket activation (`sd_listen_fds(3)`).
//!
//! The protocols are so simple that this crate needs no library of systemd. Other service managers
//! and container engines implement these protocols as well.

mod notify;
mod socket_activation;

pub use notify::{ServiceManager, VARIABLES};
pub use socket_activation::{ActivatedSocket, Activation, ActivationError};
