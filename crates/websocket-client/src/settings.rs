//! The settings of a WebSocket client, including its limits and timeouts.

use std::time::Duration;

use rookery_websocket::protocol::DecoderLimits;
use rookery_websocket::protocol::deflate::DeflateConfig;
use rookery_websocket::protocol::handshake::BadRequest;
use rookery_websocket::{ClientConfig, Config, KeepAlive};

use crate::address::Address;

/// The settings of a WebSocket client, including its limits and timeouts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The subprotocols that the client offers to the server, in order of preference.
    pub subprotocols: Vec<String>,
    /// Additional headers of the client's HTTP request. Headers that the opening handshake itself
    /// sends are not allowed.
    pub headers: Vec<(String, String)>,
    /// Whether the client offers compression (permessage-deflate, RFC 7692), without context
    /// takeover. The default is false.
    pub compresses: bool,
    /// The maximum size in bytes of a message from the server, after decompression. The default is
    /// 32 MiB.
    pub max_message_size: u64,
    /// The maximum number of bytes of messages that wait to be sent to the server. If nothing is
    /// waiting, a message of any size is accepted. The default is 16 MiB.
    pub max_queue_size: usize,
    /// The maximum time for opening a connection: from the start of the name lookup to the server's
    /// response to the opening handshake. The default is 10 s.
    pub connect_timeout: Duration,
    /// The maximum time between closing a client and the end of its connection. The default is 5 s.
    pub close_timeout: Duration,
    /// The time between two pings to the server, or `None` to send no pings. The default is 20 s.
    pub ping_interval: Option<Duration>,
    /// The time after a ping within which some data must arrive from the server. Otherwise the
    /// connection counts as lost. The default is 20 s.
    pub pong_timeout: Duration,
    /// The number of the client's group. [`Clients::next_event`](crate::Clients::next_event) takes
    /// the events of one group. An application with several event loops uses one group for each
    /// loop. The default is 0.
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
    /// Checks that a valid HTTP request to `address` can be written with these settings.
    pub(crate) fn check(&self, address: &Address) -> Result<(), BadRequest> {
        self.client_config().request(&address.authority, &address.target).map(drop)
    }

    /// Returns the configuration of the WebSocket connection and of its opening handshake.
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
