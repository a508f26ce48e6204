//! The addresses of the two sides of a connection.

use std::net::SocketAddr;

/// The addresses of the two sides of a connection. A Unix socket has no addresses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectionAddresses {
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
}

impl ConnectionAddresses {
    /// Returns the addresses of a TCP connection.
    pub(crate) fn of(remote: SocketAddr, local: SocketAddr) -> ConnectionAddresses {
        ConnectionAddresses { remote: Some(canonical(remote)), local: Some(canonical(local)) }
    }
}

/// Converts the IPv4-mapped address of a client of a dual-stack listener to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
