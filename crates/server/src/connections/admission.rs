//! Decides whether a connection may use more memory, or descriptors of files, if a share of the
//! memory [budget](rookery_exchange::Budget) is used up. A share is the memory for one purpose, or
//! all descriptors.
//!
//! - If another [network or peer](rookery_exchange::Peer) holds more bytes of the share than that
//!   of this connection would, the largest part of what it holds is
//!   [evicted](super::eviction). Clients that hold little memory are therefore still served.
//! - Otherwise this connection is refused.
//!
//! An HTTP request that is evicted or refused is rejected with 503, and a WebSocket is closed with
//! code 1013. A response that has already begun is cut off instead. A request that the application
//! is processing is never evicted, because the application would keep the memory.

use rookery_exchange::{Charge, Peer, Share};

use super::table::ConnectionTable;

/// The bytes that a connection in use counts against the memory budget. One half is for the first
/// read buffer and the first write buffer of the HTTP library hyper, 8 KiB each. The other half is
/// for a request and a response, or for the queue of a WebSocket.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

/// The bytes that TLS adds to a connection in use: for a record that is being read, the data of the
/// previous record, and a record that is being written.
pub(crate) const TLS_BYTES: usize = 48 << 10;

/// The bytes that an idle connection without TLS counts against the memory budget: for its task,
/// its state and its socket. The library hyper does not exist for an idle connection.
pub(crate) const IDLE_BYTES: usize = 3 << 10;

/// The bytes that TLS adds to an idle connection: the keys and the state of the library rustls, and
/// its input buffer of 4 KiB.
pub(crate) const IDLE_TLS_BYTES: usize = 6656;

/// The number of bytes that each HTTP/2 stream counts against the memory budget. They cover the
/// request head, the response bytes that h2 buffers, and h2's tables for the stream, which are
/// about as large as the head.
pub(crate) const STREAM_BYTES: usize = 32 << 10;

/// The bytes that a WebSocket without TLS of its own counts against the memory budget: for its
/// task, its state and its socket or HTTP/2 stream, and for a short queue.
pub(crate) const WEBSOCKET_BYTES: usize = 8 << 10;

/// The bytes that a WebSocket over TLS counts against the memory budget. The default of 10,000
/// connections thus fits into a quarter of 1 GB as WebSockets, too.
pub(crate) const WEBSOCKET_TLS_BYTES: usize = IDLE_BYTES + IDLE_TLS_BYTES;

/// The size in bytes up to which a buffer, request, response or queue does not count separately
/// against the memory budget, because it is included in [`CONNECTION_BYTES`].
pub(crate) const UNCHARGED_BYTES: usize = 8 << 10;

/// The divisor of a share of the memory budget that gives how much evicted connections may still
/// hold while a network evicts its own connections.
const UNRELEASED_PART: usize = 4;

/// The number of a network that has no connections. The numbers of networks are hashes, so none has
/// this number.
const UNKNOWN: u64 = u64::MAX;

/// Returns the number of bytes that a connection in use counts against the memory budget, which
/// depends on whether it uses TLS.
pub(crate) fn bytes_in_use(has_tls: bool) -> usize {
    if has_tls { CONNECTION_BYTES + TLS_BYTES } else { CONNECTION_BYTES }
}

/// Returns the number of bytes that an idle connection counts against the memory budget. A
/// connection is idle before its first byte, after its handshake until the first request begins,
/// and while its buffers are freed between two requests.
pub(crate) fn idle_bytes(has_tls: bool) -> usize {
    if has_tls { IDLE_BYTES + IDLE_TLS_BYTES } else { IDLE_BYTES }
}

impl ConnectionTable {
    /// Returns true if a connection of `peer` that holds `has` bytes of a share of the memory
    /// budget may hold `more` bytes in addition. If too few bytes are free, first evicts what peers
    /// hold that have more than this peer would have.
    pub(crate) fn admit(&self, peer: Peer, share: Share, has: usize, more: usize) -> bool {
        loop {
            let used = self.budget.used(share).saturating_sub(self.pending_release.bytes(share));
            if used.saturating_add(more) <= self.budget.limit(share) {
                return true;
            }
            if !self.evict_from_largest(peer, share, has, more) {
                return false;
            }
        }
    }

    /// Returns true if evicted connections still hold more than a quarter of a share of the memory
    /// budget, because their tasks have not been polled since. A network then evicts nothing of its
    /// own. Otherwise, a client with many connections that opens another one for each that is
    /// evicted would use far more memory than the share.
    pub(super) fn has_much_unreleased(&self, share: Share) -> bool {
        self.pending_release.bytes(share) > self.budget.limit(share) / UNRELEASED_PART
    }

    /// Evicts a connection or a stream of the largest network because the process has no descriptor
    /// for a new connection, whose network is not known: one that holds a file if there is one, and
    /// otherwise one that makes place as for any [newcomer](Self::free_slot). Does nothing while an
    /// evicted one has not closed its file yet.
    pub(crate) fn free_descriptor(&self) {
        if self.pending_release.bytes(Share::Descriptors) > 0 {
            return;
        }
        let newcomer = Peer::new(UNKNOWN, UNKNOWN);
        let _ = self.evict_file(newcomer) || self.free_slot(UNKNOWN);
    }

    /// Returns true if an idle connection of `peer` that has begun to send may hold `more` bytes in
    /// addition to the `has` bytes that it holds. If too few bytes are free, evicts as
    /// [`admit`](Self::admit) does, and then the slowest connections of networks that have no fewer
    /// connections than its own. `serial` is the connection's own number.
    pub(crate) fn admit_in_use(&self, peer: Peer, serial: u64, has: usize, more: usize) -> bool {
        while !self.admit(peer, Share::Connections, has, more) {
            if !self.evict_slowest_for_memory(peer, serial) {
                return false;
            }
        }
        true
    }

    /// Returns true if more than a half of the share for connections is in use. Idle connections
    /// then free their buffers at once.
    pub(crate) fn is_short_of_connection_memory(&self) -> bool {
        self.budget.used(Share::Connections) > self.budget.limit(Share::Connections) / 2
    }

    /// Counts `bytes` against a share of the memory budget until the returned value is dropped.
    /// Returns `None` if the bytes are not [admitted](Self::admit).
    pub(crate) fn try_charge(&self, peer: Peer, share: Share, bytes: usize) -> Option<Charge> {
        self.admit(peer, share, 0, bytes).then(|| self.charge(share, bytes))
    }

    /// Counts `bytes` that the server can do without, such as those of a compressor, against a
    /// share of the memory budget until the returned value is dropped. Returns `None`, and evicts
    /// nobody, if more than a half of the share would be used.
    pub(crate) fn try_charge_optional(&self, share: Share, bytes: usize) -> Option<Charge> {
        let fits = self.budget.used(share).saturating_add(bytes) <= self.budget.limit(share) / 2;
        fits.then(|| self.charge(share, bytes))
    }

    /// Counts `bytes` against a share of the memory budget until the returned value is dropped. The
    /// caller must have checked that these bytes fit.
    pub(crate) fn charge(&self, share: Share, bytes: usize) -> Charge {
        let charge = Charge::new(&self.budget, share);
        charge.set(bytes);
        charge
    }

    /// Records that evicted connections will soon release `bytes` of a share of the memory budget.
    /// The budget still counts these bytes as used, but they no longer prevent the admission of
    /// other connections.
    pub(crate) fn add_pending_release(&self, share: Share, bytes: usize) {
        self.pending_release.add(share, bytes);
    }

    /// Records that an evicted connection has released `bytes`, which were recorded with
    /// [`add_pending_release`](Self::add_pending_release) when it was evicted.
    pub(crate) fn finish_pending_release(&self, share: Share, bytes: usize) {
        self.pending_release.remove(share, bytes);
    }
}
