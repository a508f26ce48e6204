//! What a connection is allowed and how long it waits.

use std::time::Duration;

use crate::protocol::DecoderLimits;

/// The settings of a connection. A duration of more than 30 years counts as 30 years.
///
/// ```
/// use std::time::Duration;
/// use rookery_websocket::{Config, KeepAlive};
/// let pings = KeepAlive::default().interval(Duration::from_secs(5));
/// let config = Config::default().keep_alive(Some(pings)).high_water(16 << 10);
/// assert_eq!((config.high_water, config.queue_max), (16 << 10, 1 << 20));
/// ```
/// A setting that is added later is no breaking change, so a `Config` is not written as a literal:
/// ```compile_fail,E0639
/// let config = rookery_websocket::Config { queue_max: 0, ..Default::default() };
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// What the peer may send.
    pub limits: DecoderLimits,
    /// Bytes encoded and not yet taken by the transport from which on a sender is told of back-pressure, and `send` waits.
    /// Default 64 KiB: about what a socket takes by itself, so that a fast peer never sees it.
    pub high_water: usize,
    /// Bytes from which on `queue` drops a message instead of adding to them. One message is always taken by an empty
    /// queue, whatever its size. Default 1 MiB.
    pub queue_max: usize,
    /// Pings while reading. Default: every 20 s, within the 30 s after which common proxies cut.
    pub keep_alive: Option<KeepAlive>,
    /// How long a close frame's answer, and the peer's end of the stream, are waited for. Default 5 s.
    pub close_timeout: Duration,
    /// How long a handshake may take; for [`connect`](crate::connect), from looking up the name to the
    /// server's answer. Default 10 s.
    pub handshake_timeout: Duration,
}

/// Pings that keep a connection open and find out that it is not.
///
/// Needs a tokio runtime with its time driver. Works while a read waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepAlive {
    /// Between two pings. Default 20 s.
    pub interval: Duration,
    /// How long nothing at all may come after a ping. Default 20 s.
    pub timeout: Duration,
}

impl KeepAlive {
    /// Sets [`KeepAlive::interval`].
    #[must_use]
    pub fn interval(self, interval: Duration) -> KeepAlive {
        KeepAlive { interval, ..self }
    }

    /// Sets [`KeepAlive::timeout`].
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> KeepAlive {
        KeepAlive { timeout, ..self }
    }
}

impl Config {
    /// Sets [`Config::limits`].
    #[must_use]
    pub fn limits(self, limits: DecoderLimits) -> Config {
        Config { limits, ..self }
    }

    /// Sets [`Config::high_water`].
    #[must_use]
    pub fn high_water(self, high_water: usize) -> Config {
        Config { high_water, ..self }
    }

    /// Sets [`Config::queue_max`].
    #[must_use]
    pub fn queue_max(self, queue_max: usize) -> Config {
        Config { queue_max, ..self }
    }

    /// Sets [`Config::keep_alive`].
    #[must_use]
    pub fn keep_alive(self, keep_alive: Option<KeepAlive>) -> Config {
        Config { keep_alive, ..self }
    }

    /// Sets [`Config::close_timeout`].
    #[must_use]
    pub fn close_timeout(self, close_timeout: Duration) -> Config {
        Config { close_timeout, ..self }
    }

    /// Sets [`Config::handshake_timeout`].
    #[must_use]
    pub fn handshake_timeout(self, handshake_timeout: Duration) -> Config {
        Config { handshake_timeout, ..self }
    }
}

impl Default for KeepAlive {
    fn default() -> KeepAlive {
        KeepAlive { interval: Duration::from_secs(20), timeout: Duration::from_secs(20) }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            limits: DecoderLimits::default(),
            high_water: 64 << 10,
            queue_max: 1 << 20,
            keep_alive: Some(KeepAlive::default()),
            close_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}
