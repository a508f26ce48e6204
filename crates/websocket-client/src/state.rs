//! The state that the application shares with the task of a WebSocket client: commands to the task,
//! and counters that limit the queues.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::events::Content;

/// The number of bytes of received messages at which a client stops reading until the application
/// takes some messages. TCP flow control then slows the server down. A single message may be
/// larger.
pub const READ_AHEAD: usize = 1 << 20;

/// A command from the application to the task of a client.
// The channel for commands needs no limit of its own, because `ClientState::queued_bytes` limits
// the messages, and a client gets at most two commands to close.
#[derive(Debug)]
pub(crate) enum Command {
    Send(Content),
    Close { code: u16, reason: String },
}

/// The state that the application shares with the task of a WebSocket client.
#[derive(Debug, Default)]
pub(crate) struct ClientState {
    /// The number of bytes of outgoing messages that have not been written to the socket.
    pub(crate) queued_bytes: AtomicUsize,
    /// The number of bytes of received messages that the application has not taken.
    unread_bytes: AtomicUsize,
    /// The notification that the application has taken enough messages for the client's task to
    /// read more.
    has_capacity: Notify,
    /// The notification that the application has closed or abandoned the client.
    close_requested: Notify,
    is_closed: AtomicBool,
    is_abandoned: AtomicBool,
}

impl ClientState {
    /// Waits until the application has taken enough received messages that the client may read
    /// another one.
    pub(crate) async fn wait_for_capacity(&self) {
        while self.unread_bytes.load(Ordering::Acquire) >= READ_AHEAD && !self.is_abandoned() {
            self.has_capacity.notified().await;
        }
    }

    pub(crate) fn on_message_received(&self, content: &Content) {
        self.unread_bytes.fetch_add(content.cost(), Ordering::AcqRel);
    }

    pub(crate) fn on_message_taken(&self, content: &Content) {
        self.unread_bytes.fetch_sub(content.cost(), Ordering::AcqRel);
        self.has_capacity.notify_one();
    }

    /// Records that the application has closed the client.
    pub(crate) fn mark_closed(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.close_requested.notify_one();
    }

    /// Returns true if the application has closed the client.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Waits until the application has closed or abandoned the client.
    pub(crate) async fn wait_for_close(&self) {
        self.close_requested.notified().await;
    }

    /// Records that the application has abandoned the client: it takes no more of the client's
    /// events.
    pub(crate) fn mark_abandoned(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        self.has_capacity.notify_one();
        self.close_requested.notify_one();
    }

    /// Returns true if the application has abandoned the client: it takes no more of the client's
    /// events.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }
}
