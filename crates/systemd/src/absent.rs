//! The interface of this crate on Windows, where no service manager speaks systemd's protocols.

use std::time::Duration;

/// A substitute for the connection to a service manager, which discards all notifications.
#[derive(Debug, Default)]
pub struct ServiceManager(());

#[expect(clippy::unused_self, reason = "the methods are those of a service manager")]
impl ServiceManager {
    /// Returns the substitute, whatever the environment contains.
    pub fn from_environment() -> ServiceManager {
        ServiceManager::default()
    }

    /// Does nothing.
    pub fn ready(&self, _status: &str) {}

    /// Does nothing.
    pub fn reloading(&self, _status: &str) {}

    /// Does nothing.
    pub fn stopping(&self, _status: &str) {}

    /// Does nothing.
    pub fn status(&self, _status: &str) {}

    /// Does nothing.
    pub fn failed(&self, _status: &str, _code: u8) {}

    /// Returns `None`, because there is no watchdog.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        None
    }

    /// Does nothing.
    pub fn ping_watchdog(&self) {}
}

/// The listening sockets that a service manager has opened. No value of this type exists on
/// Windows.
#[derive(Debug)]
pub enum Activation {}

impl Activation {
    /// Returns false, because no service manager has opened sockets.
    pub fn has_sockets() -> bool {
        false
    }
}
