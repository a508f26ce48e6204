//! Listening sockets with a common configuration.

use crate::http::listener_config::ListenerConfig;
use crate::net::listen::ListeningSocket;

/// Listening sockets with a common configuration.
#[derive(Debug)]
pub(in crate::runtime) struct SocketGroup {
    pub(in crate::runtime) sockets: Vec<ListeningSocket>,
    pub(in crate::runtime) config: Box<ListenerConfig>,
    /// True for the public listeners of a supervisor, on which a worker accepts when the supervisor
    /// requests it.
    pub(in crate::runtime) is_public: bool,
}
