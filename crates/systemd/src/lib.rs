//! The parts of systemd's protocols that a service needs: readiness notification and the watchdog
//! (`sd_notify(3)`), and socket activation (`sd_listen_fds(3)`).
//!
//! The protocols are so simple that this crate needs no library of systemd. Other service managers
//! and container engines implement these protocols as well. None of them runs on Windows, where
//! this crate does nothing.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

#[cfg(windows)]
mod absent;
#[cfg(unix)]
mod notify;
#[cfg(unix)]
mod socket_activation;

#[cfg(windows)]
pub use absent::{Activation, ServiceManager};
#[cfg(unix)]
pub use notify::ServiceManager;
#[cfg(unix)]
pub use socket_activation::{ActivatedSocket, Activation, ActivationError};

/// The environment variables that a service manager sets for a service. Processes that the service
/// starts must not inherit these variables.
pub const VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];
