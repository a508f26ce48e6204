//! The IP addresses and ports of a connection's client and server.

use std::net::SocketAddr;

/// The IP addresses and ports of a connection's client and server. A connection over a Unix socket
/// has neither.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectionAddresses {
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
}

impl ConnectionAddresses {
    /// Makes the addresses of a TCP connection from those of the client (`remote`) and of the
    /// server (`local`).
    pub(crate) fn of(remote: SocketAddr, local: SocketAddr) -> ConnectionAddresses {
        ConnectionAddresses { remote: Some(canonical(remote)), local: Some(canonical(local)) }
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4. A listener for both IP versions reports such
/// addresses for IPv4 clients.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
