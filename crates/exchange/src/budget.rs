//! What peers make a server hold, in bytes, and what it may hold: one budget, in shares.
//!
//! # Ground rules
//! - What is held is charged by capacity, when a buffer grows or goes: never per frame, byte or poll. What every connection
//!   has is charged once, with the connection.
//! - A [`Charge`] is given back when it is dropped, on whatever thread, so that nothing stays charged that is gone.
//! - The budget counts. Who has to go when a share is used up is the server's to decide.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a byte is held for. A share that is used up leaves the others alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Share {
    /// Connections: their tasks, buffers of heads, and a small request each.
    Connections,
    /// Requests that are larger: long heads, and bodies in memory.
    Requests,
    /// WebSocket messages that have not come whole.
    Messages,
    /// What waits to be sent to WebSockets, and of replies that come in pieces.
    Queues,
    /// Replies that are being sent.
    Replies,
    /// Compressors of large replies.
    Compressors,
    /// Exchanges kept for reuse.
    Pool,
}

impl Share {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them.
    pub const ALL: [Share; Share::COUNT] = [
        Share::Connections,
        Share::Requests,
        Share::Messages,
        Share::Queues,
        Share::Replies,
        Share::Compressors,
        Share::Pool,
    ];
}

/// The counts of one server. Reading them takes no lock, so they may be a moment old on another thread.
pub struct Budget {
    limits: [usize; Share::COUNT],
    used: [AtomicUsize; Share::COUNT],
}

impl Budget {
    /// A budget with so many bytes for each share, in the order of [`Share::ALL`].
    pub fn new(limits: [usize; Share::COUNT]) -> Arc<Budget> {
        Arc::new(Budget { limits, used: Default::default() })
    }

    /// Bytes a share may have.
    pub fn limit(&self, share: Share) -> usize {
        self.limits[share as usize]
    }

    /// Bytes a share has.
    pub fn used(&self, share: Share) -> usize {
        self.used[share as usize].load(Ordering::Relaxed)
    }

    /// Sets what a share has that one thread alone counts.
    pub fn set_used(&self, share: Share, bytes: usize) {
        self.used[share as usize].store(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = Share::ALL.map(|share| (share, self.used(share), self.limit(share)));
        f.debug_tuple("Budget").field(&shares).finish()
    }
}

/// What one holder has of one share. Dropped, it gives that back.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    share: Share,
    bytes: Cell<usize>,
}

impl Charge {
    /// A charge of nothing yet.
    pub fn new(budget: &Arc<Budget>, share: Share) -> Charge {
        Charge { budget: Arc::clone(budget), share, bytes: Cell::new(0) }
    }

    /// The bytes charged.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Makes it `bytes`. Costs nothing when it is that already.
    pub fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        let used = &self.budget.used[self.share as usize];
        if bytes > before {
            used.fetch_add(bytes - before, Ordering::Relaxed);
        } else if bytes < before {
            used.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_given_back_in_full_from_any_thread() {
        let budget = Budget::new([100; Share::COUNT]);
        let (one, two) = (Charge::new(&budget, Share::Queues), Charge::new(&budget, Share::Queues));
        one.set(70);
        two.set(50);
        one.set(30);
        assert_eq!((budget.used(Share::Queues), budget.used(Share::Replies)), (80, 0));
        std::thread::spawn(move || drop(one)).join().unwrap();
        assert_eq!((budget.used(Share::Queues), two.bytes()), (50, 50));
        drop(two);
        assert_eq!(budget.used(Share::Queues), 0);
    }

    #[test]
    fn shares_are_counted_in_their_order() {
        for (at, share) in Share::ALL.into_iter().enumerate() {
            assert_eq!(share as usize, at);
        }
    }
}
