//! The two roles of a WebSocket endpoint (RFC 6455, 1.2).

/// The role of this side of a connection. Clients must mask their frames, and servers must not (RFC
/// 6455, 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that receives the frames of clients.
    Server,
    /// The side that receives the frames of servers.
    Client,
}
