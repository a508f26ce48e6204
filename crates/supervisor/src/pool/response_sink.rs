//! The state of a streamed response that is forwarded to a client. It wakes the forwarding task
//! when the client can take more data or when the response has ended.

use std::cell::Cell;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The state of a streamed response that is forwarded to a client.
#[derive(Debug, Default)]
pub(super) struct ResponseSink {
    has_ended: Cell<bool>,
    changed: Notify,
}

impl ResponseSink {
    /// Wakes the task that forwards the streamed response, because the client can take more data.
    pub(super) fn on_writable(&self) {
        self.changed.notify_one();
    }

    /// Wakes the task that forwards the streamed response, because the client has disconnected or
    /// has received the whole response.
    pub(super) fn on_ended(&self) {
        self.has_ended.set(true);
        self.changed.notify_one();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Returns a future that completes when the client can take more data or the streamed response
    /// has ended.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until the streamed response has ended.
    pub(super) async fn ended(&self) {
        while !self.has_ended.get() {
            self.changed.notified().await;
        }
    }
}
