//! The counters of the bytes that are waiting to be sent to a WebSocket. The application and the
//! server maintain separate counters, so that each counter has only one writer.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The number of bytes waiting for one WebSocket above which the application should pause until
/// [`Event::Drained`](crate::Event::Drained).
// Shiny rarely sends more at once.
const HIGH_MARK: usize = 1 << 20;

/// The maximum number of bytes that may still be on their way from the application to the server
/// when the server sends [`Event::Drained`](crate::Event::Drained) for a WebSocket. The server's
/// own queue for the WebSocket is empty at that time.
const LOW_MARK: usize = 64 << 10;

/// The counters of the bytes that are waiting to be sent to one WebSocket. Application and server
/// share them, and each counter is written by only one of the two.
#[derive(Debug, Default)]
pub struct SendBacklog {
    /// The total number of bytes in the messages that the application has sent to this WebSocket.
    /// Only the application writes this counter.
    sent: AtomicU64,
    /// The number of bytes in the application's messages to this WebSocket that the server has
    /// taken from the queue of commands. Only the server writes this counter.
    arrived: AtomicU64,
    /// The number of bytes in the server's queue for this WebSocket, including frame headers. Only
    /// the server writes this counter.
    queued: AtomicUsize,
    /// Whether the server must send [`Event::Drained`](crate::Event::Drained) as soon as no data
    /// waits for the WebSocket.
    is_awaited: AtomicBool,
    is_over: AtomicBool,
}

impl SendBacklog {
    // ---- called by the application ----

    /// Counts a message before the application sends it to a WebSocket. Returns `Some(true)` if the
    /// application may send further messages at once, and `Some(false)` if it should first wait for
    /// [`Event::Drained`](crate::Event::Drained). Returns `None` if the WebSocket has ended; the
    /// message must then not be sent.
    ///
    /// An application that never waits for this event need not call this method.
    pub fn count_sent(&self, len: usize) -> Option<bool> {
        if self.is_over() {
            return None;
        }
        let sent = self.sent.load(Ordering::Relaxed);
        self.sent.store(sent + len as u64, Ordering::Relaxed);
        let is_high = self.is_high();
        if is_high {
            // Set before the message is sent, so that the server sees the flag when it writes the
            // message.
            self.is_awaited.store(true, Ordering::Release);
        }
        Some(!is_high)
    }

    /// Returns true if the application should wait for [`Event::Drained`](crate::Event::Drained).
    pub fn is_high(&self) -> bool {
        self.waiting() > HIGH_MARK
    }

    // ---- called on behalf of a server in another process ----

    /// Records that the process that has the WebSocket's connection has written `total` bytes of
    /// messages so far.
    pub fn set_written(&self, total: u64) {
        self.arrived.store(total, Ordering::Release);
    }

    // ---- called on behalf of an application in another process ----

    /// Returns the number of bytes of messages that have been written so far. It is too low by the
    /// frame headers of the messages that wait.
    pub fn written(&self) -> u64 {
        let arrived = self.arrived.load(Ordering::Relaxed);
        arrived.saturating_sub(self.queued.load(Ordering::Relaxed) as u64)
    }

    /// Records that the application waits for [`Event::Drained`](crate::Event::Drained).
    pub fn await_drained(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    // ---- called by both sides ----

    /// Returns the number of bytes that are waiting for the WebSocket, both on their way to the
    /// server and in the server's queue.
    pub fn waiting(&self) -> usize {
        // In this order, bytes that arrive between the two loads are counted twice rather than
        // missed.
        let on_the_way = self.on_the_way();
        on_the_way.saturating_add(self.queued.load(Ordering::Relaxed))
    }

    /// Returns true if the WebSocket has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn on_the_way(&self) -> usize {
        let arrived = self.arrived.load(Ordering::Acquire);
        // The difference is 0 for an application that does not count.
        usize::try_from(self.sent.load(Ordering::Relaxed).saturating_sub(arrived))
            .unwrap_or(usize::MAX)
    }

    // ---- called by the server ----

    /// Records that a message of `len` bytes for the WebSocket has arrived at the server, whose
    /// queue then contains `queued` bytes.
    pub fn on_arrived(&self, len: usize, queued: usize) {
        self.queued.store(queued, Ordering::Relaxed);
        if queued > HIGH_MARK {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
        let arrived = self.arrived.load(Ordering::Relaxed);
        self.arrived.store(arrived + len as u64, Ordering::Release);
    }

    /// Records that the server has written data to the WebSocket and that `queued` bytes are still
    /// in its queue.
    pub fn on_written(&self, queued: usize) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Records that the server's queue for the WebSocket is empty. Returns true if the application
    /// is waiting for this, so that the server must now send
    /// [`Event::Drained`](crate::Event::Drained).
    pub fn take_drained(&self) -> bool {
        self.queued.store(0, Ordering::Relaxed);
        self.is_awaited.load(Ordering::Relaxed)
            && self.on_the_way() <= LOW_MARK
            && self.is_awaited.swap(false, Ordering::Acquire)
    }

    /// Records that the WebSocket has ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.queued.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_application_is_notified_once_the_backlog_is_written() {
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
    fn no_notification_while_many_bytes_are_on_their_way() {
        let backlog = SendBacklog::default();
        assert_eq!(backlog.count_sent(2 * HIGH_MARK), Some(false));
        assert_eq!(backlog.count_sent(2 * HIGH_MARK), Some(false));
        backlog.on_arrived(2 * HIGH_MARK, 2 * HIGH_MARK);
        assert!(!backlog.take_drained());
        backlog.on_arrived(2 * HIGH_MARK, 2 * HIGH_MARK);
        assert!(backlog.take_drained());
    }

    #[test]
    fn two_processes_count_the_same_bytes() {
        let (app, server) = (SendBacklog::default(), SendBacklog::default());
        assert_eq!(app.count_sent(2 * HIGH_MARK), Some(false));
        server.await_drained();
        server.on_arrived(2 * HIGH_MARK, 2 * HIGH_MARK);
        assert_eq!(server.written(), 0);
        server.on_written(HIGH_MARK);
        app.set_written(server.written());
        assert_eq!(app.waiting(), HIGH_MARK);
        assert!(server.take_drained());
        app.set_written(server.written());
        assert_eq!((app.waiting(), app.count_sent(1)), (0, Some(true)));
    }

    #[test]
    fn an_application_that_does_not_count_sees_the_servers_queue() {
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
