//! The peers among which a server divides its places and its time.

/// A peer: the client to which a server attributes a request or a message when it divides places in
/// queues and time among its clients. Without a trusted proxy, each connection is a peer. Behind a
/// trusted proxy, each client address that the proxy forwards is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peer {
    /// The number of the peer, which no other peer has.
    id: u64,
    /// The number of the peer's network: its IPv4 address, or the first 64 bits of its IPv6
    /// address.
    network: u64,
}

impl Peer {
    /// Creates a peer from its number, which must be unique, and the number of its network. Clients
    /// must not be able to choose either number, because they are not hashed with a secret.
    pub const fn new(id: u64, network: u64) -> Peer {
        Peer { id, network }
    }

    /// Returns the unique number of the peer.
    pub const fn id(self) -> u64 {
        self.id
    }

    /// Returns the number that all peers of the same network have in common.
    pub const fn network(self) -> u64 {
        self.network
    }
}
