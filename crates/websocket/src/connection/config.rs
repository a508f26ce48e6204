//! Limits and timeouts of a connection.

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
/// Settings may be added without a breaking change, so a `Config` cannot be written as a literal:
/// ```compile_fail,E0639
/// let config = rookery_websocket::Config { queue_max: 0, ..Default::default() };
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The limits of what the peer may send.
    pub limits: DecoderLimits,
    /// The number of encoded bytes that the transport has not accepted at which `send` waits and
    /// senders receive [`SendStatus::Backpressure`](crate::SendStatus::Backpressure). Default: 64
    /// KiB.
    pub high_water: usize,
    /// The number of queued bytes above which `queue` drops messages. An empty queue accepts one
    /// message of any size. Default: 1 MiB.
    pub queue_max: usize,
    /// The keep-alive pings, which are sent while a read waits. Default: every 20 s.
    pub keep_alive: Option<KeepAlive>,
    /// The time to wait for the peer's close frame, and then for the end of its stream. Default: 5
    /// s.
    pub close_timeout: Duration,
    /// The time that the opening handshake may take. For [`connect`](crate::connect) it includes
    /// name resolution and connecting. Default: 10 s.
    pub handshake_timeout: Duration,
}

/// Pings that keep a connection open and detect a lost peer.
///
/// They need a tokio runtime with its time driver, and are sent while a read waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepAlive {
    /// The interval between two pings. Default: 20 s.
    pub interval: Duration,
    /// The time that the peer may stay silent after a ping. Default: 20 s.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::open::ClientConfig;
    use crate::protocol::deflate::{DeflateConfig, Level, Takeover, WindowBits};
    use crate::protocol::handshake::{OriginPolicy, ServerConfig};

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let seconds = Duration::from_secs;
        let config = Config::default();
        assert_eq!((config.limits.message, config.limits.fragments), (16 << 20, 4096));
        assert_eq!((config.high_water, config.queue_max), (64 << 10, 1 << 20));
        let pings = config.keep_alive.unwrap();
        assert_eq!((pings.interval, pings.timeout), (seconds(20), seconds(20)));
        assert_eq!((config.close_timeout, config.handshake_timeout), (seconds(5), seconds(10)));
        let deflate = DeflateConfig::default();
        assert_eq!((deflate.own_takeover, deflate.peer_takeover), (Takeover::None, Takeover::None));
        assert_eq!((deflate.own_bits, deflate.peer_bits), (WindowBits::MAX, WindowBits::MAX));
        assert_eq!((deflate.level, deflate.threshold), (Level::new(2).unwrap(), 512));
        let server = ServerConfig::default();
        assert_eq!((server.deflate, server.origin), (None, OriginPolicy::SameHost));
        assert!(server.subprotocols.is_empty());
        let client = ClientConfig::default();
        assert!(
            client.deflate.is_none() && client.subprotocols.is_empty() && client.headers.is_empty()
        );
    }

    #[test]
    fn a_setting_changes_itself_and_no_other() {
        let second = Duration::from_secs(1);
        let all = Config::default()
            .limits(DecoderLimits::new().message(1).fragments(2))
            .high_water(3)
            .queue_max(4)
            .keep_alive(Some(KeepAlive::default().interval(second).timeout(second * 2)))
            .close_timeout(second * 5)
            .handshake_timeout(second * 6);
        let expected = Config {
            limits: DecoderLimits { message: 1, fragments: 2 },
            high_water: 3,
            queue_max: 4,
            keep_alive: Some(KeepAlive { interval: second, timeout: second * 2 }),
            close_timeout: second * 5,
            handshake_timeout: second * 6,
        };
        assert_eq!(format!("{all:?}"), format!("{expected:?}"));
        let bits = |bits| WindowBits::new(bits).unwrap();
        let deflate = DeflateConfig::default()
            .own_takeover(Takeover::Kept)
            .own_bits(bits(9))
            .peer_bits(bits(10))
            .level(Level::new(7).unwrap())
            .threshold(8);
        assert_eq!((deflate.own_takeover, deflate.peer_takeover), (Takeover::Kept, Takeover::None));
        assert_eq!((deflate.own_bits, deflate.peer_bits), (bits(9), bits(10)));
        assert_eq!((deflate.level, deflate.threshold), (Level::new(7).unwrap(), 8));
    }
}
