//! What happens when a share of the [budget](rookery_exchange::Budget) is used up.
//!
//! Whoever needs more than is left is refused, unless somebody holds more: then that one goes. So whoever holds little is
//! served however full it is, and of those that hold the same, the newest goes. HTTP is answered with 503, a WebSocket
//! ends with 1013; a reply under way, which cannot be answered any more, is cut off. A request that the application has
//! is never ended: what it holds would stay with the application.
//!
//! Looking for the largest costs a look over all peers, and happens only when a share is used up.

use std::rc::Rc;

use rookery_exchange::{Charge, Share};

use super::table::{Peer, Peers};

/// What every connection is charged: a buffer to read into and one to write from (8 KiB each, hyper's first), a request
/// and a reply of as much, or a WebSocket's queue.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

/// What of a buffer, a request, a reply or a queue is not charged again, because every connection is.
pub(crate) const FREE: usize = 8 << 10;

impl Peers {
    /// Makes room for a holder of `has` bytes that needs `more`. `false` when it is to be refused.
    pub(crate) fn make_room(&self, share: Share, has: usize, more: usize) -> bool {
        loop {
            let used = self.budget.used(share).saturating_sub(self.leaving.of(share));
            if used.saturating_add(more) <= self.budget.limit(share) {
                return true;
            }
            if !self.end_largest(share, has.saturating_add(more)) {
                return false;
            }
        }
    }

    /// Charges `bytes` if there is room for them.
    pub(crate) fn hold(&self, share: Share, bytes: usize) -> Option<Charge> {
        self.make_room(share, 0, bytes).then(|| self.charge(share, bytes))
    }

    /// Charges what there is room for.
    pub(crate) fn charge(&self, share: Share, bytes: usize) -> Charge {
        let charge = Charge::new(&self.budget, share);
        charge.set(bytes);
        charge
    }

    /// Notes that a holder has been told to let go of so much.
    pub(crate) fn expect_to_leave(&self, share: Share, bytes: usize) {
        self.leaving.add(share, bytes);
    }

    /// Notes that it has.
    pub(crate) fn has_left(&self, share: Share, bytes: usize) {
        self.leaving.remove(share, bytes);
    }

    /// Ends the largest holder of a share, if it has more than `least`.
    fn end_largest(&self, share: Share, least: usize) -> bool {
        let mut largest: Option<(usize, u64, Rc<dyn Peer>)> = None;
        self.each(|_, peer| {
            let (held, serial) = (peer.held(share), peer.serial());
            if held > least
                && largest
                    .as_ref()
                    .is_none_or(|(most, newest, _)| (held, serial) > (*most, *newest))
            {
                largest = Some((held, serial, Rc::clone(peer)));
            }
        });
        let Some((held, _, peer)) = largest else { return false };
        peer.evict(share, held);
        true
    }
}
