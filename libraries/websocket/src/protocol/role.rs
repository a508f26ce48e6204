//! The two roles of a WebSocket endpoint (RFC 6455, 1.2).

/// The role of one side of a WebSocket connection. Clients must mask their frames, and servers must
/// not (RFC 6455, 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The server, which receives masked frames from the client.
    Server,
    /// The client, which receives unmasked frames from the server.
    Client,
}
