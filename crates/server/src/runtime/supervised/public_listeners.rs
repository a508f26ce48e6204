//! The public listeners: the sockets to which clients connect. A supervisor passes them to its
//! worker, so that the worker can accept connections itself.

use std::io;
use std::sync::Arc;

use rookery_system::fork::CloseInChild;
use rookery_worker_protocol::PublicSockets;

use crate::http::listener_config::{ListenerConfig, Redirect};

use crate::net::descriptor::close_in_child;
use crate::net::listen::ListeningSocket;
use crate::runtime::listening::socket_group::SocketGroup;

/// The public listeners that the supervisor has passed to this worker. The sockets stay open as
/// long as this value exists. If the process runs several servers one after another, each accepts
/// connections on copies of them.
#[derive(Debug)]
pub(in crate::runtime) struct PublicListeners {
    // Dropped before the sockets, because another thread may reuse the number of a closed
    // descriptor.
    _close_in_child: Vec<CloseInChild>,
    sockets: Vec<ListeningSocket>,
    /// The sockets on which the server redirects plaintext requests to HTTPS.
    redirects: Vec<ListeningSocket>,
}

impl PublicListeners {
    pub(in crate::runtime) fn new(inherited: PublicSockets) -> PublicListeners {
        let [sockets, redirects] = [inherited.sockets, inherited.redirects]
            .map(|sockets| sockets.into_iter().map(ListeningSocket::from_fd).collect::<Vec<_>>());
        let close_in_child = sockets.iter().chain(&redirects).map(close_in_child).collect();
        PublicListeners { _close_in_child: close_in_child, sockets, redirects }
    }

    /// Returns copies of the public listeners in two groups: the sockets that are served according
    /// to `config`, and those whose requests are redirected to HTTPS.
    pub(in crate::runtime) fn groups(
        &self,
        config: &ListenerConfig,
    ) -> io::Result<Vec<SocketGroup>> {
        let copies = |sockets: &[ListeningSocket]| {
            sockets.iter().map(ListeningSocket::try_clone).collect::<io::Result<Vec<_>>>()
        };
        let group =
            |sockets, config| SocketGroup { sockets, config: Box::new(config), is_public: true };
        let own = ListenerConfig { redirect: None, ..config.clone() };
        let mut groups = vec![group(copies(&self.sockets)?, own)];
        let port = self.sockets.iter().find_map(ListeningSocket::port);
        if let (Some(tls), Some(port), false) = (&config.tls, port, self.redirects.is_empty()) {
            // A proxy in front of one port is also in front of the other.
            let redirect = ListenerConfig {
                redirect: Some(Arc::new(Redirect { tls: tls.clone(), port })),
                proxies: config.proxies.clone(),
                proxy_protocol: config.proxy_protocol.clone(),
                notice: config.notice,
                ..ListenerConfig::default()
            };
            groups.push(group(copies(&self.redirects)?, redirect));
        }
        Ok(groups)
    }
}
