//! The admission of connections to the memory [budget](rookery_exchange::Budget): whether a
//! connection may use more memory when a share of the budget is used up.
//!
//! A connection that needs more bytes than are left is refused, unless another connection holds
//! more bytes than this one would. In that case, that other connection is evicted. Connections that
//! hold little memory are therefore served even if the share is used up. Among connections that
//! hold the same amount, the newest is evicted. An HTTP request is rejected with 503, and a
//! WebSocket is closed with code 1013. A response that has begun can no longer become a 503, and is
//! cut off. A request that the application is processing is never evicted, because the application
//! would keep the memory.
//!
//! The search for the connection that holds the most memory visits all connections, but is made
//! only when a share is used up.

use std::rc::Rc;

use rookery_exchange::{Charge, Share};

use super::table::{ConnectionTable, TableEntry};

/// The bytes that every connection counts against the memory budget. One half is for a read buffer
/// and a write buffer of 8 KiB each, as hyper allocates at first. The other half is for a request
/// and a response, or for the queue of a WebSocket.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

/// The size in bytes up to which a buffer, request, response or queue does not count separately
/// against the memory budget, because it is included in [`CONNECTION_BYTES`].
pub(crate) const UNCHARGED_BYTES: usize = 8 << 10;

impl ConnectionTable {
    /// Returns true if a connection that holds `has` bytes of a share of the memory budget may hold
    /// `more` bytes in addition. Evicts other connections if that makes the bytes available.
    pub(crate) fn admit(&self, share: Share, has: usize, more: usize) -> bool {
        loop {
            let used = self.budget.used(share).saturating_sub(self.pending_release.bytes(share));
            if used.saturating_add(more) <= self.budget.limit(share) {
                return true;
            }
            if !self.evict_largest(share, has.saturating_add(more)) {
                return false;
            }
        }
    }

    /// Counts `bytes` against a share of the memory budget until the returned value is dropped.
    /// Returns `None` if the bytes are not [admitted](Self::admit).
    pub(crate) fn try_charge(&self, share: Share, bytes: usize) -> Option<Charge> {
        self.admit(share, 0, bytes).then(|| self.charge(share, bytes))
    }

    /// Counts `bytes` against a share of the memory budget until the returned value is dropped. The
    /// caller must have called [`admit`](Self::admit) for these bytes before.
    pub(crate) fn charge(&self, share: Share, bytes: usize) -> Charge {
        let charge = Charge::new(&self.budget, share);
        charge.set(bytes);
        charge
    }

    /// Adds `bytes` to the bytes that evicted connections are about to release. The memory budget
    /// still counts these bytes, but they no longer prevent the admission of other connections.
    pub(crate) fn add_pending_release(&self, share: Share, bytes: usize) {
        self.pending_release.add(share, bytes);
    }

    /// Subtracts `bytes` from the bytes that evicted connections are about to release
    /// ([`add_pending_release`](Self::add_pending_release)), because a connection has released
    /// them.
    pub(crate) fn finish_pending_release(&self, share: Share, bytes: usize) {
        self.pending_release.remove(share, bytes);
    }

    /// Evicts the connection that holds the most bytes of a share of the memory budget, if it holds
    /// more than `least`. Returns true if a connection was evicted.
    fn evict_largest(&self, share: Share, least: usize) -> bool {
        let mut largest: Option<(usize, u64, Rc<dyn TableEntry>)> = None;
        self.for_each(|_, entry| {
            let (held, serial) = (entry.held(share), entry.serial());
            if held > least
                && largest
                    .as_ref()
                    .is_none_or(|(most, newest, _)| (held, serial) > (*most, *newest))
            {
                largest = Some((held, serial, Rc::clone(entry)));
            }
        });
        let Some((held, _, entry)) = largest else { return false };
        entry.evict_for_memory(share, held);
        true
    }
}
