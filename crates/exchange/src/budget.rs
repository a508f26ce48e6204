//! The memory budget of a server, which limits the bytes that clients can make it hold. The budget
//! is divided into shares.
//!
//! # Ground rules
//! - Memory is charged by capacity when a buffer grows or is freed, never for each frame, byte or
//!   poll. The memory that every connection needs is charged once, with the connection.
//! - A [`Charge`] is released when it is dropped, on any thread, so that freed memory never remains
//!   charged.
//! - The budget only counts. The server decides which connections to close when a share is
//!   exhausted.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The purpose of memory that counts towards the budget. An exhausted share does not affect the
/// others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Share {
    /// Connections, each with its task, the buffer for heads, and a small request.
    Connections,
    /// Requests that are larger than usual, with long heads or with bodies in memory.
    Requests,
    /// WebSocket messages of which only a part has arrived.
    Messages,
    /// Data that is waiting to be sent to WebSockets or in streamed responses.
    Queues,
    /// Responses that are being sent.
    Replies,
    /// Compressors of large responses.
    Compressors,
    /// Exchanges that are kept for reuse.
    Pool,
}

impl Share {
    /// The number of shares.
    pub const COUNT: usize = 7;

    /// All shares, in the order of their discriminants.
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

/// The memory budget of one server: a limit and a count for each share. Reading a count takes no
/// lock, so another thread may see a value that is slightly out of date.
pub struct Budget {
    limits: [usize; Share::COUNT],
    used: [AtomicUsize; Share::COUNT],
}

impl Budget {
    /// Creates a budget with a limit in bytes for each share, in the order of [`Share::ALL`].
    pub fn new(limits: [usize; Share::COUNT]) -> Arc<Budget> {
        Arc::new(Budget { limits, used: Default::default() })
    }

    /// Returns the limit of a share in bytes.
    pub fn limit(&self, share: Share) -> usize {
        self.limits[share as usize]
    }

    /// Returns the number of bytes charged to a share.
    pub fn used(&self, share: Share) -> usize {
        self.used[share as usize].load(Ordering::Relaxed)
    }

    /// Sets the number of bytes charged to a share. Only for a share that a single thread counts as
    /// a whole, without [`Charge`]s.
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

/// The bytes that one holder has charged to one share. Dropping the charge releases them.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    share: Share,
    bytes: Cell<usize>,
}

impl Charge {
    /// Creates a charge of zero bytes.
    pub fn new(budget: &Arc<Budget>, share: Share) -> Charge {
        Charge { budget: Arc::clone(budget), share, bytes: Cell::new(0) }
    }

    /// Returns the number of bytes charged.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Changes the charge to `bytes`. Does no atomic operation if the charge is already that large.
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
    fn a_charge_is_released_in_full_from_any_thread() {
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
    fn shares_have_the_discriminants_of_their_order() {
        for (at, share) in Share::ALL.into_iter().enumerate() {
            assert_eq!(share as usize, at);
        }
    }
}
