//! The order in which connections are evicted for new ones.

/// The loss of a client whose connection is evicted, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionCost {
    /// A connection without a request.
    Idle,
    /// A request head that is not complete, or a handshake.
    Head,
    /// A request whose body is being received.
    Body,
    /// A response that the client does not read as fast as the server writes.
    UnreadResponse,
    /// A request that waits for a worker.
    WaitingRequest,
    /// A WebSocket, or a streamed response.
    Session,
    /// A request that the application may have begun, or a response that the client reads.
    Served,
}
