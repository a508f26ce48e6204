//! What a client is to be like, and what bounds it.

use std::time::Duration;

use rookery_websocket::protocol::DecoderLimits;
use rookery_websocket::protocol::deflate::DeflateConfig;
use rookery_websocket::protocol::handshake::BadRequest;
use rookery_websocket::{ClientConfig, Config, KeepAlive};

use crate::address::Address;

/// A client's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The subprotocols that are offered, the preferred one first.
    pub subprotocols: Vec<String>,
    /// More header fields of the request; not those that the handshake sends itself.
    pub headers: Vec<(String, String)>,
    /// Whether permessage-deflate (RFC 7692) is offered, without context takeover. Default: not.
    pub compresses: bool,
    /// Bytes of a message that the server may send, after inflation. Default 32 MiB.
    pub max_message_size: u64,
    /// Bytes that may wait to be sent. Default 16 MiB. One message is always taken when nothing waits.
    pub max_queue_size: usize,
    /// From looking up the name to the server's answer to the handshake. Default 10 s.
    pub connect_timeout: Duration,
    /// From closing to the end of the connection, whatever the server does. Default 5 s.
    pub close_timeout: Duration,
    /// Between two pings, none without it. Default 20 s.
    pub ping_interval: Option<Duration>,
    /// How long nothing at all may come after a ping. Default 20 s.
    pub pong_timeout: Duration,
    /// The group whose events [`Clients::next_event`](crate::Clients::next_event) takes together: an
    /// application with several event loops has one for each. Default 0.
    pub group: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            subprotocols: Vec::new(),
            headers: Vec::new(),
            compresses: false,
            max_message_size: 32 << 20,
            max_queue_size: 16 << 20,
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            ping_interval: Some(Duration::from_secs(20)),
            pong_timeout: Duration::from_secs(20),
            group: 0,
        }
    }
}

impl Settings {
    /// Checks that a request to `address` can be written with these settings.
    pub(crate) fn check(&self, address: &Address) -> Result<(), BadRequest> {
        self.client_config().request(&address.authority, &address.target).map(drop)
    }

    /// Returns the settings of the connection and of its handshake.
    pub(crate) fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::default()
            .deflate(self.compresses.then(DeflateConfig::default))
            .connection(self.connection_config());
        config.subprotocols.clone_from(&self.subprotocols);
        config.headers.clone_from(&self.headers);
        config
    }

    fn connection_config(&self) -> Config {
        let pings = |interval| KeepAlive::default().interval(interval).timeout(self.pong_timeout);
        Config::default()
            .limits(DecoderLimits::new().message(self.max_message_size))
            .keep_alive(self.ping_interval.map(pings))
            .close_timeout(self.close_timeout)
            // It is a part of what `connect_timeout` bounds.
            .handshake_timeout(Duration::MAX)
    }
}
