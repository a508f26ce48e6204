//! The public listeners of a supervisor, in the worker that may be told to accept on them.

use std::io;
use std::sync::Arc;

use rookery_worker::PublicSockets;

use crate::http::listener_config::{Downstream, ListenerConfig, Redirect};
use crate::net::descriptor::CloseInChild;
use crate::net::listen::Bound;

/// Sockets that serve the same.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) bound: Vec<Bound>,
    pub(super) site: Box<ListenerConfig>,
    /// Whether they are the public listeners of a supervisor, which it has a worker accept on.
    pub(super) is_public: bool,
}

/// The public listeners. They stay open while this lives, so that one server after the other can
/// accept on copies.
#[derive(Debug)]
pub(super) struct PublicListeners {
    // Before the sockets: a descriptor that was closed may be somebody else's by now.
    _close_in_child: Vec<CloseInChild>,
    sockets: Vec<Bound>,
    /// Those from which requests in the clear are redirected to HTTPS.
    redirects: Vec<Bound>,
}

impl PublicListeners {
    pub(super) fn new(inherited: PublicSockets) -> PublicListeners {
        let [sockets, redirects] = [inherited.sockets, inherited.redirects]
            .map(|sockets| sockets.into_iter().map(Bound::of).collect::<Vec<_>>());
        let close_in_child = sockets.iter().chain(&redirects).map(CloseInChild::new).collect();
        PublicListeners { _close_in_child: close_in_child, sockets, redirects }
    }

    /// Returns copies of the sockets with what they serve: `site`, and redirects to it.
    pub(super) fn groups(&self, site: &ListenerConfig) -> io::Result<Vec<Group>> {
        let copies =
            |sockets: &[Bound]| sockets.iter().map(Bound::copy).collect::<io::Result<Vec<_>>>();
        let group = |bound, site| Group { bound, site: Box::new(site), is_public: true };
        let own =
            ListenerConfig { downstream: Downstream::Clients, redirect: None, ..site.clone() };
        let mut groups = vec![group(copies(&self.sockets)?, own)];
        let port = self.sockets.iter().find_map(Bound::port);
        if let (Some(tls), Some(port), false) = (&site.tls, port, self.redirects.is_empty()) {
            // What is between a client and one port is between it and the other.
            let redirect = ListenerConfig {
                redirect: Some(Arc::new(Redirect { tls: tls.clone(), port })),
                proxies: site.proxies.clone(),
                proxy_protocol: site.proxy_protocol,
                notice: site.notice,
                ..ListenerConfig::default()
            };
            groups.push(group(copies(&self.redirects)?, redirect));
        }
        Ok(groups)
    }
}
