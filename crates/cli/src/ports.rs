//! The ports that clients come to: that of what is served, and the one beside it that sends clients there; or the sockets that a service
//! manager has opened for it.

use std::fmt::Display;
use std::sync::Arc;

use rookery_server::{ListenError, Listener, Notice, Redirect, Server, Site};
use rookery_service::{Activated, Activation};

use crate::address::Address;
use crate::failure::{Failure, say, tell};
use crate::settings::AskedTls;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ports {
    listeners: Vec<Listener>,
    /// Where they are, as a browser takes it.
    pub(crate) shown: String,
}

impl Ports {
    /// Listens on both; on what a service manager has handed over instead, if it has.
    ///
    /// # Errors
    /// When that cannot be done.
    pub(crate) fn listen(
        server: &Server,
        address: &Address,
        beside: Option<&Address>,
        site: Site,
        tls: Option<&AskedTls>,
    ) -> Result<Ports, Failure> {
        let scheme = if site.tls.is_some() { "https" } else { "http" };
        let domain = tls.and_then(AskedTls::domain);
        // What is between a client and one port is between it and the other.
        let (proxies, proxy_protocol) = (site.proxies.clone(), site.proxy_protocol);
        let opened = site.tls.clone();
        // SAFETY: called once, since this is; and nobody uses descriptors that the environment says are somebody's.
        let given = unsafe { Activation::take() };
        let given = given.map_err(|error| Failure::Address(format!("{error}.")))?;
        let mut listeners = Vec::new();
        let mut shown = Vec::new();
        for (_, socket) in given.sockets {
            let (listener, at) = listen_given(server, socket, site.clone())?;
            shown.push(at.shown(listener.local_addr().map(|local| local.port()), scheme, domain).to_string());
            listeners.push(listener);
        }
        if listeners.is_empty() {
            let listener = address.listen(server, site)?;
            let port = listener.local_addr().map(|local| local.port());
            shown.push(address.shown(port, scheme, domain).to_string());
            listeners.push(listener);
        } else {
            tell("it serves on the sockets of the service manager: --host and --port are not used");
        }
        let port = listeners.iter().find_map(|listener| Some(listener.local_addr()?.port()));
        if let (Some(beside), Some(tls), Some(port)) = (beside, opened, port) {
            let redirect = Some(Arc::new(Redirect { tls, port }));
            let site = Site { redirect, proxies, proxy_protocol, notice: Notice(tell), ..Site::default() };
            listeners.insert(0, beside.listen(server, site)?);
        }
        Ok(Ports { listeners, shown: shown.join(" and ") })
    }

    /// How many connections there are. Asks the thread that has them.
    pub(crate) fn connections(&self) -> usize {
        self.listeners.iter().map(Listener::connections).sum()
    }

    /// Lets in nobody more, and says whom it waits for.
    pub(crate) fn drain(&self) {
        self.listeners.iter().for_each(Listener::drain);
        let left = self.connections();
        if left > 0 {
            let what = if left == 1 { "connection is" } else { "connections are" };
            say(&format!("Stopping: {left} {what} being finished. A second signal ends at once."));
        }
    }

    pub(crate) fn stop(self) {
        self.listeners.into_iter().for_each(Listener::stop);
    }
}

fn listen_given(server: &Server, socket: Activated, site: Site) -> Result<(Listener, Address), Failure> {
    let cannot = |error: &dyn Display| {
        Failure::Address(format!("A socket of the service manager cannot be used: {error}."))
    };
    match socket {
        Activated::Tcp(socket) => {
            let local = socket.local_addr().map_err(|error| cannot(&error))?;
            let address = Address::Tcp { host: local.ip().to_string(), socket: local };
            let listener = server.listen_tcp_socket(socket, site);
            Ok((listener.map_err(|error: ListenError| cannot(&error))?, address))
        }
        Activated::Unix(socket) => {
            let local = socket.local_addr().map_err(|error| cannot(&error))?;
            let path =
                local.as_pathname().map_or_else(|| "a Unix socket".into(), std::path::Path::to_path_buf);
            let listener = server.listen_unix_socket(socket, site);
            Ok((listener.map_err(|error: ListenError| cannot(&error))?, Address::Unix(path)))
        }
    }
}
