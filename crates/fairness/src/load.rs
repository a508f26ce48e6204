//! What counts towards the limits of a queue.

use std::ops::{AddAssign, SubAssign};

/// The amount that one or several items count towards the limits of their queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// The number of requests.
    pub requests: usize,
    /// The number of WebSocket messages.
    pub messages: usize,
    /// The number of bytes of the WebSocket messages.
    pub bytes: usize,
}

impl Load {
    /// Returns whether a queue with this load accepts messages of peers that hold none in it, and
    /// of networks that hold none. `limit` is the load at which the queue is full.
    ///
    /// The bytes do not matter for networks, because a single message can have more than twice the
    /// limit, and may wait for its turn behind many items of its own network.
    pub fn admits_first_messages(self, limit: Load) -> [bool; 2] {
        let is_below = |used: usize, limit: usize, halves| used < limit.saturating_mul(halves) / 2;
        let of_peers =
            is_below(self.messages, limit.messages, 3) && is_below(self.bytes, limit.bytes, 3);
        [of_peers, is_below(self.messages, limit.messages, 4)]
    }
}

impl AddAssign for Load {
    #[inline]
    fn add_assign(&mut self, other: Load) {
        self.requests += other.requests;
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

impl SubAssign for Load {
    #[inline]
    fn sub_assign(&mut self, other: Load) {
        self.requests -= other.requests;
        self.messages -= other.messages;
        self.bytes -= other.bytes;
    }
}

/// An item of a [`FairQueue`](crate::FairQueue).
pub trait Queued {
    /// Returns what the item counts towards the limits of the queue. The result must not change
    /// while the item is in the queue.
    fn load(&self) -> Load;
}
