//! The limits and timeouts of a WebSocket connection.

use std::time::Duration;

use crate::protocol::DecoderLimits;

/// The settings of a WebSocket connection. A duration of more than 30 years counts as 30 years.
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
    /// The limits for the frames and messages that the peer sends.
    pub limits: DecoderLimits,
    /// The number of unsent bytes at which back-pressure begins: `send` waits, and `queue` returns
    /// [`SendStatus::Backpressure`](crate::SendStatus::Backpressure). Encoded bytes count until the
    /// transport has accepted them. Default: 64 KiB.
    pub high_water: usize,
    /// The maximum number of bytes in the send queue. Above it, `queue` drops messages. An empty
    /// queue accepts one message of any size. Default: 1 MiB.
    pub queue_max: usize,
    /// The keep-alive pings, which are sent while a read waits. Default: every 20 s.
    pub keep_alive: Option<KeepAlive>,
    /// The maximum time for each of two waits: for the peer's close frame, and then for the end of
    /// the peer's byte stream. Default: 5 s.
    pub close_timeout: Duration,
    /// The maximum time for the opening handshake. For [`connect`](crate::connect) it includes name
    /// resolution and connecting. Default: 10 s.
    pub handshake_timeout: Duration,
}

/// Keep-alive pings, which keep a WebSocket connection open and detect a lost peer.
///
/// The pings need a tokio runtime with its time driver, and are sent while a read waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeepAlive {
    /// The interval between two keep-alive pings. Default: 20 s.
    pub interval: Duration,
    /// The time after a ping within which some data must arrive from the peer. Otherwise the peer
    /// counts as lost. Default: 20 s.
    pub timeout: Duration,
}

impl KeepAlive {
    /// Sets [`KeepAlive::interval`], the interval between two pings.
    #[must_use]
    pub fn interval(self, interval: Duration) -> KeepAlive {
        KeepAlive { interval, ..self }
    }

    /// Sets [`KeepAlive::timeout`], the time that the peer may stay silent after a ping.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> KeepAlive {
        KeepAlive { timeout, ..self }
    }
}

impl Config {
    /// Sets [`Config::limits`], the limits for the frames and messages that the peer sends.
    #[must_use]
    pub fn limits(self, limits: DecoderLimits) -> Config {
        Config { limits, ..self }
    }

    /// Sets [`Config::high_water`], the number of unsent bytes at which back-pressure begins.
    #[must_use]
    pub fn high_water(self, high_water: usize) -> Config {
        Config { high_water, ..self }
    }

    /// Sets [`Config::queue_max`], the maximum number of bytes in the send queue.
    #[must_use]
    pub fn queue_max(self, queue_max: usize) -> Config {
        Config { queue_max, ..self }
    }

    /// Sets [`Config::keep_alive`], the keep-alive pings, or disables them with `None`.
    #[must_use]
    pub fn keep_alive(self, keep_alive: Option<KeepAlive>) -> Config {
        Config { keep_alive, ..self }
    }

    /// Sets [`Config::close_timeout`], the time to wait for the peer during the close.
    #[must_use]
    pub fn close_timeout(self, close_timeout: Duration) -> Config {
        Config { close_timeout, ..self }
    }

    /// Sets [`Config::handshake_timeout`], the maximum time for the opening handshake.
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
