//! The two roles of a WebSocket endpoint (RFC 6455, 1.2).

/// Which side the decoder is on. A server's peer must mask, a client's must not (RFC 6455, 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads what clients send.
    Server,
    /// Reads what servers send.
    Client,
}
