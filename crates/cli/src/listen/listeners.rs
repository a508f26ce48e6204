//! The server's listeners: one on the served address, and optionally one that redirects plaintext
//! HTTP requests to HTTPS. If a service manager has opened sockets, the server listens on them
//! instead of the address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
use rookery_server::LimitsControl;
use rookery_server::{
    InheritedAddress, InheritedSockets, Listener, ListenerConfig, Notice, Redirect, Server,
};

use rookery_settings::Settings;

use crate::failure::Failure;
use crate::listen::address::Address;
use crate::listen::service_sockets::{RequestedListeners, ServiceSockets};
use crate::process::failed_thread;
use crate::stderr::{log_line, print_lines};

/// The server's open listeners, and their addresses as text.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// The open listeners. One of them may redirect plaintext HTTP requests to HTTPS.
    open: Vec<Listener>,
    /// The URLs and socket paths that the start-up screen shows.
    pub(crate) addresses: String,
    /// The URL of the server to open in a browser, or `None` if it listens only on Unix sockets.
    pub(crate) url: Option<String>,
    scheme: &'static str,
    /// The TCP addresses of the listeners. Empty if the server's URLs contain a public host name
    /// (`--domain`) instead.
    ip_addresses: Vec<SocketAddr>,
}

impl Listeners {
    /// Opens listeners on the sockets `given` of the service manager, and on the server's addresses
    /// where the service manager has opened none.
    ///
    /// # Errors
    /// Fails if the server cannot listen on an address or an inherited socket.
    pub(crate) fn open(
        server: &Server,
        requested: RequestedListeners<'_>,
        given: &ServiceSockets,
        site: ListenerConfig,
        settings: &Settings,
    ) -> Result<Listeners, Failure> {
        let address = requested.address;
        let scheme = if site.tls.is_some() { "https" } else { "http" };
        let domains = settings.list("domain");
        let domain = domains.first().map(String::as_str);
        // A proxy in front of one port is also in front of the other.
        let (proxies, proxy_protocol) = (site.proxies.clone(), site.proxy_protocol.clone());
        let opened = site.tls.clone();
        let mut addresses = Vec::new();
        let mut ip_addresses = Vec::new();
        let mut add = |at: &Address, port: Option<u16>| {
            addresses.push(at.url(port, scheme, domain).to_string());
            if let (Address::Tcp { socket, .. }, None) = (at, domain) {
                ip_addresses.push(SocketAddr::new(socket.ip(), port.unwrap_or(socket.port())));
            }
        };
        let mut listeners = if given.app.is_empty() {
            let listener = address.listen(server, site)?;
            let port = listener.local_addr().map(|local| local.port());
            add(address, port);
            vec![listener]
        } else {
            for address in given.app.addresses() {
                let (at, port) = shown_address(address);
                add(&at, port);
            }
            log_line(&format!(
                "the server accepts connections on {}, the sockets that the service manager \
                 (systemd) has opened, and ignores `--host` and `--port`",
                given.shown_app()
            ));
            vec![listen_inherited(server, &given.app, site)?]
        };
        let port = listeners.iter().find_map(|listener| Some(listener.local_addr()?.port()));
        let port = port.or(address.port());
        if let (Some(redirect_address), Some(tls), Some(port)) = (requested.redirect, opened, port)
        {
            let redirect = Some(Arc::new(Redirect { tls, port }));
            let site = ListenerConfig {
                redirect,
                proxies,
                proxy_protocol,
                notice: Notice(log_line),
                ..ListenerConfig::default()
            };
            let listener = if given.redirect.is_empty() {
                redirect_address.listen(server, site)?
            } else {
                listen_inherited(server, &given.redirect, site)?
            };
            listeners.insert(0, listener);
        }
        let url = addresses.iter().find(|address| address.contains("://")).cloned();
        Ok(Listeners {
            open: listeners,
            addresses: addresses.join(" and "),
            url,
            scheme,
            ip_addresses,
        })
    }

    /// Returns the URLs by which other machines reach the server. `own` is the IP address of this
    /// machine in its network.
    pub(crate) fn network_urls(&self, own: Option<IpAddr>) -> Vec<String> {
        self.ip_addresses
            .iter()
            .filter_map(|listens| network_url(self.scheme, *listens, own))
            .collect()
    }

    /// Returns a handle by which the limits on clients can be changed.
    ///
    /// # Panics
    /// Panics if there is no listener.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(crate) fn limits_control(&self) -> LimitsControl {
        self.open.first().expect("a server has a listener").limits_control()
    }

    /// Returns the number of open client connections. Blocks until the I/O thread responds.
    pub(crate) fn connections(&self) -> usize {
        self.open.iter().map(Listener::connections).sum()
    }

    /// Returns the reason why a thread has failed without which the program cannot serve or react
    /// to signals, or `None` if there is no such failure.
    pub(crate) fn take_thread_failure(&self) -> Option<String> {
        let front = self.open.iter().find_map(Listener::take_failure);
        front.map(|reason| format!("the I/O thread has failed: {reason}")).or_else(failed_thread)
    }

    /// Stops accepting connections, and logs how many client connections are still open. WebSockets
    /// are closed one after the other in the time `close_over`.
    pub(crate) fn drain(&self, close_over: Duration) {
        self.open.iter().for_each(|listener| listener.drain_over(close_over));
        let left = self.connections();
        if left > 0 {
            let what = if left == 1 { "connection is" } else { "connections are" };
            print_lines(&format!(
                "Stopping: {left} {what} being finished. A second signal stops the server at once."
            ));
        }
    }

    /// Cuts off the responses that are still being sent.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    pub(crate) fn cut(&self) {
        self.open.iter().for_each(Listener::cut);
    }

    pub(crate) fn stop(self) {
        self.open.into_iter().for_each(Listener::stop);
    }
}

/// Opens a listener on sockets of the service manager.
fn listen_inherited(
    server: &Server,
    sockets: &InheritedSockets,
    site: ListenerConfig,
) -> Result<Listener, Failure> {
    server.listen_inherited(sockets, site).map_err(|error| {
        Failure::Address(format!("The sockets of the service manager cannot be used: {error}."))
    })
}

fn shown_address(address: InheritedAddress) -> (Address, Option<u16>) {
    match address {
        InheritedAddress::Tcp(local) => {
            (Address::Tcp { host: local.ip().to_string(), socket: local }, Some(local.port()))
        }
        InheritedAddress::Unix(path) => {
            (Address::Unix(path.unwrap_or_else(|| "a Unix socket".into())), None)
        }
    }
}

/// Returns the URL by which other machines reach the server. `listens` is the address that the
/// server listens on, and `own` the address of this machine in its network. Returns `None` unless
/// `listens` stands for all network interfaces.
pub(crate) fn network_url(
    scheme: &str,
    listens: SocketAddr,
    own: Option<IpAddr>,
) -> Option<String> {
    let own = own.filter(|own| listens.is_ipv6() || own.is_ipv4())?;
    listens
        .ip()
        .is_unspecified()
        .then(|| format!("{scheme}://{}", SocketAddr::new(own, listens.port())))
}

#[cfg(test)]
mod tests {
    use rookery_server::Config;

    use super::*;

    #[test]
    fn a_failure_of_the_io_thread_is_reported_once() {
        let server = Server::for_static_files(Config::default());
        let address = "127.0.0.1:0".parse().unwrap();
        let listeners = Listeners {
            open: vec![server.listen_tcp(address, ListenerConfig::default()).unwrap()],
            addresses: String::new(),
            url: None,
            scheme: "http",
            ip_addresses: Vec::new(),
        };
        assert_eq!(listeners.take_thread_failure(), None);
        server.panic_io_thread();
        let mut failure = None;
        while failure.is_none() {
            std::thread::yield_now();
            failure = listeners.take_thread_failure();
        }
        let expected = "the I/O thread has failed: broken for a test";
        assert_eq!(failure.as_deref(), Some(expected));
        assert_eq!(listeners.take_thread_failure(), None);
    }

    #[test]
    fn shows_network_urls_if_all_interfaces_are_listened_on() {
        let url = |listens: &str, own: &str| {
            network_url("http", listens.parse().unwrap(), own.parse().ok())
        };
        assert_eq!(url("0.0.0.0:8000", "192.168.1.7").as_deref(), Some("http://192.168.1.7:8000"));
        assert_eq!(url("[::]:8000", "192.168.1.7").as_deref(), Some("http://192.168.1.7:8000"));
        assert_eq!(url("[::]:8000", "2001:db8::7").as_deref(), Some("http://[2001:db8::7]:8000"));
        for (listens, own) in [
            ("127.0.0.1:8000", "192.168.1.7"),
            ("0.0.0.0:8000", "2001:db8::7"),
            ("0.0.0.0:8000", "none"),
        ] {
            assert_eq!(url(listens, own), None, "{listens}");
        }
    }
}
