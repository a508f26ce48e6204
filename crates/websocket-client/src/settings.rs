//! The settings of a client, including its limits.

use std::time::Duration;

use rookery_websocket::protocol::DecoderLimits;
use rookery_websocket::protocol::deflate::DeflateConfig;
use rookery_websocket::protocol::handshake::BadRequest;
use rookery_websocket::{ClientConfig, Config, KeepAlive};

use crate::address::Address;

/// The settings of a client.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The subprotocols that are offered, in order of preference.
    pub subprotocols: Vec<String>,
    /// Additional headers of the request. Headers that the handshake itself sends are not allowed.
    pub headers: Vec<(String, String)>,
    /// Whether permessage-deflate (RFC 7692) is offered, without context takeover. The default is
    /// false.
    pub compresses: bool,
    /// The maximum size in bytes of a message from the server, after decompression. The default is
    /// 32 MiB.
    pub max_message_size: u64,
    /// The maximum number of bytes that wait to be sent. If nothing is waiting, a message of any
    /// size is accepted. The default is 16 MiB.
    pub max_queue_size: usize,
    /// The maximum time from the start of the name lookup to the server's response to the
    /// handshake. The default is 10 s.
    pub connect_timeout: Duration,
    /// The maximum time from closing a client to the end of the connection. The default is 5 s.
    pub close_timeout: Duration,
    /// The time between two pings; `None` disables pings. The default is 20 s.
    pub ping_interval: Option<Duration>,
    /// The maximum time for which no data arrives after a ping. The default is 20 s.
    pub pong_timeout: Duration,
    /// The group whose events [`Clients::next_event`](crate::Clients::next_event) takes together.
    /// An application with several event loops uses one group for each. The default is 0.
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
            // The handshake is a part of what `connect_timeout` limits.
            .handshake_timeout(Duration::MAX)
    }
}
