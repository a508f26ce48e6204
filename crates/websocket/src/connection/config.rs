//! What a connection is allowed and how long it waits.

use std::time::Duration;

use crate::protocol::DecoderLimits;

/// The settings of a connection. A duration of more than 30 years counts as 30 years.
#[derive(Debug, Clone)]
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
    /// How long a handshake may take. Default 10 s.
    pub handshake_timeout: Duration,
}

/// Pings that keep a connection open and find out that it is not.
///
/// Needs a tokio runtime with its time driver. Works while a read waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// Between two pings. Default 20 s.
    pub interval: Duration,
    /// How long nothing at all may come after a ping. Default 20 s.
    pub timeout: Duration,
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
