//! The client's end of a streamed response.

use std::cell::Cell;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The state of a streamed response towards its client.
#[derive(Debug, Default)]
pub(super) struct ResponseSink {
    has_ended: Cell<bool>,
    changed: Notify,
}

impl ResponseSink {
    /// Notifies the task that forwards the response that the client has read what was sent.
    pub(super) fn on_writable(&self) {
        self.changed.notify_one();
    }

    /// Notifies the task that forwards the response that the client has disconnected or has the whole
    /// response.
    pub(super) fn on_ended(&self) {
        self.has_ended.set(true);
        self.changed.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Returns a future that waits for the next notification: the client can take more, or the stream has ended.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the stream has ended.
    pub(super) async fn ended(&self) {
        while !self.has_ended.get() {
            self.changed.notified().await;
        }
    }
}
