//! The peers among which the server divides its places, its memory and its time.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::rc::Rc;

use rookery_exchange::{ById, Peer};

/// The maximum number of WebSockets of one peer. Over HTTP/2, a connection has fewer, so it limits
/// the clients behind trusted proxies.
pub(crate) const MAX_WEBSOCKETS: usize = 1000;

/// The numbers of the peers of an I/O thread, and the counts that have limits. Clients cannot
/// choose or guess the numbers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    hasher: RandomState,
    /// The number of connections of each network, for
    /// [`Limits::max_connections_per_ip`](crate::Limits::max_connections_per_ip). It is empty if
    /// that number is not limited.
    connections: Rc<Counts>,
    /// The number of WebSockets of each peer. A handshake that waits for the application counts as
    /// one.
    websockets: Rc<Counts>,
}

/// The numbers of the connections of networks, or of the WebSockets of peers.
#[derive(Debug, Default)]
struct Counts(RefCell<ById<usize>>);

/// A guard that counts a connection for its network, or a WebSocket for its peer, until the guard
/// is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    counts: Rc<Counts>,
    id: u64,
}

impl Counted {
    /// Adds one to the count of `id` until the guard is dropped. Returns `None` if the count is
    /// `limit` already.
    fn new(counts: &Rc<Counts>, id: u64, limit: usize) -> Option<Counted> {
        let mut all = counts.0.borrow_mut();
        let before = all.get(&id).copied().unwrap_or(0);
        if before >= limit {
            return None;
        }
        all.insert(id, before + 1);
        Some(Counted { counts: Rc::clone(counts), id })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.counts.0.borrow_mut();
        if let Some(count) = counts.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.id);
            }
            if counts.is_empty() {
                counts.shrink_to_fit();
            }
        }
    }
}

impl Peers {
    /// Returns the peer that is the connection with the number `serial`, whose client has `address`
    /// (`None` for a client of a Unix socket).
    pub(crate) fn connection(&self, serial: u64, address: Option<IpAddr>) -> Peer {
        Peer::new(serial, self.network(address))
    }

    /// Returns the peer of all requests that trusted proxies forward for `address`.
    // The number is a hash, so with overwhelming probability it is not the number of a connection.
    pub(crate) fn forwarded(&self, address: IpAddr) -> Peer {
        let network = self.network(Some(address));
        Peer::new(network, network)
    }

    /// Returns the number of the network of a client with `address` (`None` for a client of a Unix
    /// socket).
    pub(crate) fn network(&self, address: Option<IpAddr>) -> u64 {
        address.map_or(0, |address| self.hasher.hash_one(network(address)))
    }

    /// Counts a new connection of a network until the returned guard is dropped. Returns `None` if
    /// the network already has `limit` connections.
    pub(crate) fn count_connection(&self, network: u64, limit: usize) -> Option<Counted> {
        Counted::new(&self.connections, network, limit)
    }

    /// Counts a WebSocket of a peer, or a handshake for one, until the returned guard is dropped.
    /// Returns `None` if the peer already has `limit` of them.
    pub(crate) fn count_websocket(&self, peer: Peer, limit: usize) -> Option<Counted> {
        Counted::new(&self.websockets, peer.id(), limit)
    }
}

/// Returns the address under which a client is counted. For IPv6 it is the /64 network of the
/// client, because an IPv6 client usually has such a network of its own (RFC 6177).
fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_bits().into(),
        // No client has an IPv6 network that is less than 2^32.
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_the_network_of_its_ipv4_address_or_of_64_bits_of_ipv6() {
        let peers = Peers::default();
        let network = |address: &str| peers.connection(1, Some(address.parse().unwrap())).network();
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("2001:db8:0:1::1"), network("2001:db8:0:1:ffff::2"));
        assert_ne!(network("2001:db8:0:1::1"), network("2001:db8:0:2::1"));
        assert_eq!(peers.connection(7, None), Peer::new(7, 0));
        let counted = [(); 3].map(|()| peers.count_connection(5, 2));
        assert!(counted[1].is_some() && counted[2].is_none());
        drop(counted);
        assert!(peers.connections.0.borrow().is_empty() && peers.count_connection(5, 0).is_none());
        let websocket = peers.count_websocket(Peer::new(1, 5), 1);
        assert!(websocket.is_some() && peers.count_websocket(Peer::new(1, 6), 1).is_none());
        let forwarded = peers.forwarded("192.0.2.1".parse().unwrap());
        assert_eq!(forwarded, Peer::new(network("192.0.2.1"), network("192.0.2.1")));
    }
}
