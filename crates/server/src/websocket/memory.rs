//! What a WebSocket is charged for, and how it ends when there is no room for that.

use rookery_exchange::Share;
use rookery_websocket::protocol::CloseCode;

use super::handle::{WebSocketHandle, WebSocketState};
use crate::connections::admission::UNCHARGED_BYTES;
use crate::rejection::Rejection;

/// A queue is charged in steps of this: it grows and shrinks with every message.
const QUEUE_STEP: usize = 64 << 10;

/// What may stay queued for a peer that is told 1013: the rest of a small message.
const MAX_QUEUE_WHILE_CLOSING: usize = 64 << 10;

impl WebSocketHandle {
    /// FrameTracker the WebSocket with 1013: what waits behind the message that is being sent is dropped, and the peer has
    /// the time of a close to read the rest.
    pub(super) fn close_for_overload(&self, rejection: Rejection, reason: &str) {
        self.shared.report(self.id, rejection);
        if self.state() == WebSocketState::Open {
            self.endpoint.borrow_mut().drop_after_current();
        }
        self.drop_deferred();
        self.queue_close_frame(Some(CloseCode::TRY_AGAIN_LATER), reason);
    }

    /// Charges the queue, which has grown.
    pub(super) fn charge_queue(&self) {
        let (has, len) = (self.queue_charge.bytes(), self.pending());
        let needs = len.next_multiple_of(QUEUE_STEP);
        if needs <= has {
            return;
        }
        if self.shared.connections.admit(Share::Queues, has, needs - has) {
            self.queue_charge.set(needs);
        } else {
            self.evict_for(Share::Queues);
        }
    }

    /// Charges what the decoder has put together of a message. `false` when there is no room for it.
    pub(super) fn charge_message(&self, capacity: usize) -> bool {
        let has = self.message_charge.bytes();
        let needs = if capacity <= UNCHARGED_BYTES { 0 } else { capacity };
        if needs <= has {
            self.message_charge.set(needs);
            return true;
        }
        if !self.shared.connections.admit(Share::Messages, has, needs - has) {
            self.evict_for(Share::Messages);
            return false;
        }
        self.message_charge.set(needs);
        true
    }

    /// What it holds of a share, if that can be had from it.
    pub(super) fn evictable_bytes(&self, share: Share) -> usize {
        match (share, self.state()) {
            (_, WebSocketState::Closed) => 0,
            (Share::Messages, _) if self.pending_release.get() == 0 => self.message_charge.bytes(),
            // One that is told to go may take its time to read what is left.
            (Share::Queues, WebSocketState::Closing) if self.queue_charge.bytes() <= QUEUE_STEP => {
                0
            }
            (Share::Queues, _) => self.queue_charge.bytes(),
            _ => 0,
        }
    }

    /// FrameTracker the WebSocket for want of room: with 1013, or dropped where a large message would have to be read before.
    pub(super) fn evict_for(&self, share: Share) {
        let was_closing = self.state() == WebSocketState::Closing;
        self.close_for_overload(Rejection::Overload, "server overloaded");
        if share == Share::Messages {
            // Its buffer is the task's, which drops it when it is polled next.
            let leaving = self.message_charge.bytes();
            self.shared.connections.add_pending_release(Share::Messages, leaving);
            self.pending_release.set(leaving);
            self.is_evicted.set(true);
        }
        let len = self.pending();
        if len > MAX_QUEUE_WHILE_CLOSING || (was_closing && share == Share::Queues) {
            self.queue_charge.set(0);
            self.abort();
        } else {
            self.queue_charge.set(if self.queue_charge.bytes() > 0 {
                len.next_multiple_of(QUEUE_STEP)
            } else {
                0
            });
        }
        self.wake();
    }

    /// The task has dropped what was put together of a message, and hears no more.
    pub(super) fn on_message_dropped(&self) {
        self.shared
            .connections
            .finish_pending_release(Share::Messages, self.pending_release.take());
        self.message_charge.set(0);
    }
}
