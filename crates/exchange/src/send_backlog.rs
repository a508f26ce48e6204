//! How much waits to be sent to a WebSocket: counted by application and server together, each its own part, so that neither
//! writes what the other does.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes that wait past which the application is to wait too, and is told when they have been written. A browser's picture,
/// or a table, is less; what Shiny sends in one go seldom is more.
const HIGH_MARK: usize = 1 << 20;

/// Bytes on their way to the server up to which the application is told that what waited has been written: more of them will
/// have it told again.
const LOW_MARK: usize = 64 << 10;

/// What waits to be sent to one WebSocket. Its [`Exchange`](crate::Exchange) has it, and the application keeps it.
///
/// # Allocation
/// One, with the handshake. A message costs either side a few loads and stores, none of them locked.
#[derive(Debug, Default)]
pub struct SendBacklog {
    /// Bytes of messages that the application has sent; it alone writes this.
    sent: AtomicU64,
    /// Of those, what has arrived at the server, which alone writes this and the next.
    arrived: AtomicU64,
    /// Bytes that wait there, as they will go over the wire.
    queued: AtomicUsize,
    /// Whether the application is to be told when they have been written.
    is_awaited: AtomicBool,
    is_over: AtomicBool,
}

impl SendBacklog {
    // ---- the application's side ----

    /// Counts a message in, before it is sent: whether the application may go on at once, or is to wait for
    /// [`Event::Drained`](crate::Event::Drained), which comes for certain after a `false`, unless the WebSocket ends. `None`: it has
    /// ended, and nothing is to be sent.
    ///
    /// An application that does not wait need not count.
    pub fn count_sent(&self, len: usize) -> Option<bool> {
        if self.is_over() {
            return None;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        self.sent.store(sent + len as u64, Ordering::Relaxed);
        let is_high = self.waiting() > HIGH_MARK;
        if is_high {
            // Before the message is sent: the server, which writes it after that, sees it.
            self.is_awaited.store(true, Ordering::Release);
        }
        Some(!is_high)
    }

    // ---- both sides ----

    /// Bytes that wait, on their way to the server and there.
    pub fn waiting(&self) -> usize {
        // In this order: what arrives between the two is counted twice, and not missed.
        let on_the_way = self.on_the_way();
        on_the_way.saturating_add(self.queued.load(Ordering::Relaxed))
    }

    /// Whether the WebSocket has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn on_the_way(&self) -> usize {
        let arrived = self.arrived.load(Ordering::Acquire);
        // Nothing, for an application that does not count.
        usize::try_from(self.sent.load(Ordering::Relaxed).saturating_sub(arrived))
            .unwrap_or(usize::MAX)
    }

    // ---- the server's side ----

    /// A message of `len` bytes has arrived, with which `queued` wait.
    pub fn on_arrived(&self, len: usize, queued: usize) {
        self.queued.store(queued, Ordering::Relaxed);
        if queued > HIGH_MARK {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
        let arrived = self.arrived.load(Ordering::Relaxed);
        self.arrived.store(arrived + len as u64, Ordering::Release);
    }

    /// So many bytes still wait.
    pub fn on_written(&self, queued: usize) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Nothing waits at the server any more. Says whether the application is to be told.
    pub fn take_drained(&self) -> bool {
        self.queued.store(0, Ordering::Relaxed);
        self.is_awaited.load(Ordering::Relaxed)
            && self.on_the_way() <= LOW_MARK
            && self.is_awaited.swap(false, Ordering::Acquire)
    }

    /// The WebSocket has ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.queued.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_to_wait_is_told_when_it_has_been_written() {
        let backlog = SendBacklog::default();
        assert_eq!(backlog.count_sent(HIGH_MARK), Some(true));
        assert_eq!(backlog.count_sent(1), Some(false));
        assert_eq!(backlog.waiting(), HIGH_MARK + 1);
        backlog.on_arrived(HIGH_MARK, HIGH_MARK + 10);
        assert_eq!(backlog.waiting(), HIGH_MARK + 11, "with its header");
        backlog.on_written(500);
        backlog.on_arrived(1, 503);
        assert_eq!(backlog.waiting(), 503);
        assert!(backlog.take_drained());
        assert!(!backlog.take_drained(), "once");
        assert_eq!(backlog.waiting(), 0);
    }

    #[test]
    fn it_is_not_told_while_much_is_on_its_way() {
        let backlog = SendBacklog::default();
        assert_eq!(backlog.count_sent(2 * HIGH_MARK), Some(false));
        assert_eq!(backlog.count_sent(2 * HIGH_MARK), Some(false));
        backlog.on_arrived(2 * HIGH_MARK, 2 * HIGH_MARK);
        assert!(!backlog.take_drained());
        backlog.on_arrived(2 * HIGH_MARK, 2 * HIGH_MARK);
        assert!(backlog.take_drained());
    }

    #[test]
    fn one_that_does_not_count_is_told_of_what_the_server_has() {
        let backlog = SendBacklog::default();
        backlog.on_arrived(HIGH_MARK, HIGH_MARK);
        assert!(!backlog.take_drained());
        backlog.on_arrived(1, HIGH_MARK + 1);
        assert_eq!(backlog.waiting(), HIGH_MARK + 1);
        assert!(backlog.take_drained());
        backlog.end();
        assert_eq!((backlog.count_sent(1), backlog.waiting()), (None, 0));
    }
}
