//! The ports that clients come to: that of what is served, and the one beside it that sends clients there.

use std::sync::Arc;

use rookery_server::{Listener, Notice, Redirect, Server, Site};

use crate::address::Address;
use crate::failure::{Failure, say, tell};

/// Listens on both; the port of what is served, where it has one, for what is said of it.
pub(crate) fn listen(
    server: &Server,
    address: &Address,
    beside: Option<&Address>,
    site: Site,
) -> Result<(Vec<Listener>, Option<u16>), Failure> {
    // What is between a client and one port is between it and the other.
    let (proxies, proxy_protocol, tls) = (site.proxies.clone(), site.proxy_protocol, site.tls.clone());
    let listener = address.listen(server, site)?;
    let port = listener.local_addr().map(|local| local.port());
    let redirect = match (beside, tls, port) {
        (Some(beside), Some(tls), Some(port)) => {
            let redirect = Some(Arc::new(Redirect { tls, port }));
            let site = Site { redirect, proxies, proxy_protocol, notice: Notice(tell), ..Site::default() };
            Some(beside.listen(server, site)?)
        }
        _ => None,
    };
    Ok((redirect.into_iter().chain([listener]).collect(), port))
}

/// How many connections there are.
pub(crate) fn connections(listeners: &[Listener]) -> usize {
    listeners.iter().map(Listener::connections).sum()
}

/// Lets in nobody more, and says whom it waits for.
pub(crate) fn drain(listeners: &[Listener]) {
    listeners.iter().for_each(Listener::drain);
    let left = connections(listeners);
    if left > 0 {
        let what = if left == 1 { "connection is" } else { "connections are" };
        say(&format!("Stopping: {left} {what} being finished. A second signal ends at once."));
    }
}
