//! How many handshakes of TLS are under way at a time, and who makes room for another.
//!
//! A handshake takes the I/O thread for a tenth of a millisecond, or half of one with RSA. A crowd that comes at once is therefore
//! taken in by and by: what is open already is answered in between, and the rest waits in the system's queue.

use std::cell::RefCell;
use std::collections::VecDeque;

use tokio::sync::Notify;

use crate::peers::table::Peers;

/// The handshakes that are under way.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Whose they are, the oldest first.
    keys: RefCell<VecDeque<usize>>,
    /// Told whenever one has ended.
    ended: Notify,
}

impl Handshakes {
    pub(super) fn begin(&self, key: usize) {
        self.keys.borrow_mut().push_back(key);
    }

    pub(super) fn end(&self, key: usize) {
        self.keys.borrow_mut().retain(|other| *other != key);
        self.ended.notify_waiters();
    }

    /// Waits until another may begin: one has ended, or gives its place up, as its time for that is over when it counts as slow.
    pub(crate) async fn room(&self, peers: &Peers) {
        loop {
            // Before the look, so that an end between the look and the wait is not missed.
            let ended = self.ended.notified();
            if self.keys.borrow().len() < peers.limits.handshakes {
                return;
            }
            self.end_oldest(peers);
            tokio::select! {
                biased;
                () = ended => {}
                () = tokio::time::sleep(peers.clock.ticks.length) => {}
            }
        }
    }

    /// Ends the oldest that is slow, if one is.
    fn end_oldest(&self, peers: &Peers) {
        let now = peers.clock.now();
        let slow = self
            .keys
            .borrow()
            .iter()
            .find_map(|key| peers.get(*key).filter(|peer| peer.slowness(now).is_some()));
        if let Some(peer) = slow {
            peer.give_seat();
        }
    }
}
