//! The memory budget of a server, which limits how many bytes clients can make the server hold. The
//! budget is divided into three shares of memory: for connections, for what clients send, and for
//! what is sent to clients. A fourth share limits the file descriptors that clients can make the
//! server hold, so its unit is a descriptor instead of a byte.
//!
//! # Ground rules
//! - A [`Charge`] counts bytes against a share. Dropping it, on any thread, releases the bytes.
//! - A buffer is charged with its capacity. The charge changes only when the buffer grows or is
//!   freed.
//! - The memory that every connection needs is charged once, when the connection is accepted.
//! - The budget only counts bytes. When a share is exhausted, the server decides which connections
//!   to close.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A share of the server's memory budget: the memory for one purpose, with a limit of its own. When
/// one share is exhausted, the other shares remain usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Share {
    /// The memory that every open connection needs: for its task, for a buffer of request heads,
    /// and for a small request with its response.
    Connections,
    /// The memory of what clients send: requests that are larger than usual because they have a
    /// long head or a body in memory, and incomplete WebSocket messages.
    Incoming,
    /// The memory of what is sent to clients: responses, data that is queued for WebSockets and
    /// streamed responses, and compressors.
    Outgoing,
    /// The descriptors of files that requests need: of bodies that are spooled, and of responses
    /// that are read from a file. The unit is a descriptor. Sockets do not belong to this share.
    Descriptors,
}

impl Share {
    /// The number of shares into which the memory budget is divided.
    pub const COUNT: usize = 4;

    /// All shares of the memory budget, in the order of their discriminants.
    pub const ALL: [Share; Share::COUNT] =
        [Share::Connections, Share::Incoming, Share::Outgoing, Share::Descriptors];
}

/// The divisor of [`Share::Outgoing`] that gives the part which a single response leaves to all
/// others.
const LEFT_BY_RESPONSE: usize = 8;

/// The memory budget of one server. It contains a limit and a count of used bytes for each
/// [`Share`].
pub struct Budget {
    limits: [AtomicUsize; Share::COUNT],
    used: [AtomicUsize; Share::COUNT],
}

impl Budget {
    /// Creates a memory budget. `limits` contains the limit of each share in its unit, in the order
    /// of [`Share::ALL`].
    pub fn new(limits: [usize; Share::COUNT]) -> Arc<Budget> {
        Arc::new(Budget { limits: limits.map(AtomicUsize::new), used: Default::default() })
    }

    /// Returns the limit of one share of the memory budget, in the unit of the share.
    pub fn limit(&self, share: Share) -> usize {
        self.limits[share as usize].load(Ordering::Relaxed)
    }

    /// Returns how many bytes a response of `len` bytes counts against [`Share::Outgoing`]. A
    /// response that is longer than most of the share counts as this part of the share. Otherwise,
    /// it could be sent only while nothing else is sent to any client.
    pub fn bytes_of_response(&self, len: usize) -> usize {
        let limit = self.limit(Share::Outgoing);
        len.min(limit - limit / LEFT_BY_RESPONSE)
    }

    /// Changes the limit of one share of the memory budget. What is charged already stays charged.
    pub fn set_limit(&self, share: Share, limit: usize) {
        self.limits[share as usize].store(limit, Ordering::Relaxed);
    }

    /// Returns the number of bytes (or descriptors) that are charged to one share of the memory
    /// budget.
    pub fn used(&self, share: Share) -> usize {
        self.used[share as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = Share::ALL.map(|share| (share, self.used(share), self.limit(share)));
        f.debug_tuple("Budget").field(&shares).finish()
    }
}

/// A number of bytes, or of descriptors, that is charged to one share of the memory budget.
/// Dropping the charge releases them.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    share: Share,
    bytes: Cell<usize>,
}

impl Charge {
    /// Creates a charge of zero bytes to one share of the memory budget.
    pub fn new(budget: &Arc<Budget>, share: Share) -> Charge {
        Charge { budget: Arc::clone(budget), share, bytes: Cell::new(0) }
    }

    /// Returns the number of bytes in this charge to the memory budget.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Changes the number of bytes (or descriptors) in this charge to the memory budget.
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
        let (one, two) =
            (Charge::new(&budget, Share::Outgoing), Charge::new(&budget, Share::Outgoing));
        one.set(70);
        two.set(50);
        one.set(30);
        assert_eq!((budget.used(Share::Outgoing), budget.used(Share::Incoming)), (80, 0));
        std::thread::spawn(move || drop(one)).join().unwrap();
        assert_eq!((budget.used(Share::Outgoing), two.bytes()), (50, 50));
        drop(two);
        assert_eq!(budget.used(Share::Outgoing), 0);
    }

    #[test]
    fn shares_have_the_discriminants_of_their_order() {
        for (at, share) in Share::ALL.into_iter().enumerate() {
            assert_eq!(share as usize, at);
        }
    }
}
