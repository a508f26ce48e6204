//! The addresses of the two ends of a connection.

use std::net::SocketAddr;

/// The two ends of a connection; a Unix socket's have no address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConnectionAddresses {
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
}

impl ConnectionAddresses {
    /// Those of a client over TCP.
    pub(crate) fn of(remote: SocketAddr, local: SocketAddr) -> ConnectionAddresses {
        ConnectionAddresses { remote: Some(canonical(remote)), local: Some(canonical(local)) }
    }
}

/// An IPv4 peer of a dual-stack listener is shown as what it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
