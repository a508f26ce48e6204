//! What a service manager and a service say to one another, by the protocols of systemd: `sd_notify(3)`, the watchdog and
//! `sd_listen_fds(3)`. They are a datagram, two numbers and a row of descriptors, so no library of systemd's is needed; other managers and
//! container engines speak them as well.

mod manager;
mod sockets;

pub use manager::{Manager, NAMES};
pub use sockets::{Activated, Activation, ActivationError};
