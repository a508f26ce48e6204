//! A group of listening sockets that are served according to the same configuration.

use crate::http::listener_config::ListenerConfig;
use crate::net::listen::ListeningSocket;

/// A group of listening sockets that are served according to the same configuration.
#[derive(Debug)]
pub(in crate::runtime) struct SocketGroup {
    pub(in crate::runtime) sockets: Vec<ListeningSocket>,
    pub(in crate::runtime) config: Box<ListenerConfig>,
    /// True if the sockets are the supervisor's public listeners, on which a worker accepts
    /// connections only when the supervisor requests it.
    pub(in crate::runtime) is_public: bool,
}
