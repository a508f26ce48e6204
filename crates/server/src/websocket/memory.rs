//! Charges the memory budget for the messages of a WebSocket, and closes the WebSocket when the
//! budget is exhausted.

use rookery_exchange::Share;
use rookery_websocket::protocol::CloseCode;

use super::handle::{WebSocketHandle, WebSocketState};
use crate::connections::admission::{WEBSOCKET_BYTES, WEBSOCKET_TLS_BYTES};
use crate::net::transport::Transport;
use crate::rejection::Rejection;

/// The step in bytes in which the memory charge for a WebSocket's send queue grows. Without steps,
/// the charge would change with every message.
const QUEUE_STEP: usize = 64 << 10;

/// The size in bytes up to which an incomplete incoming message does not count separately against
/// the memory budget.
const UNCHARGED_MESSAGE_BYTES: usize = 512;

/// The maximum length in bytes of the send queue of a WebSocket that is closed for lack of memory.
/// If the queue is longer, the connection is aborted without a closing handshake.
const MAX_QUEUE_WHILE_CLOSING: usize = 64 << 10;

/// The reason in the close frame of a WebSocket that is closed because others need its memory.
const OVERLOADED: &str = "server overloaded";

impl WebSocketHandle {
    /// Closes the WebSocket as [`close_for_overload`](Self::close_for_overload) does, but does not
    /// wait for the client: what cannot be written at once is lost.
    pub(super) fn close_now(&self, rejection: Rejection, reason: &str) {
        if self.ends_after_write.replace(true) {
            return;
        }
        self.close_for_overload(rejection, reason);
        self.wake();
    }

    /// Closes the WebSocket with close code 1013 (try again later) and `reason`, and reports
    /// `rejection`. Drops all queued messages except the one that is being sent. The client can
    /// still read the remaining output until the closing timeout expires.
    pub(super) fn close_for_overload(&self, rejection: Rejection, reason: &str) {
        self.shared.report(self.id, rejection);
        if self.state() == WebSocketState::Open {
            self.endpoint.borrow_mut().drop_after_current();
        }
        self.drop_deferred();
        self.queue_close_frame(Some(CloseCode::TRY_AGAIN_LATER), reason);
    }

    /// Charges the memory budget for the send queue after it has grown. If the budget is exhausted,
    /// closes the WebSocket.
    pub(super) fn charge_queue(&self) {
        self.charge_output(self.pending());
    }

    /// Charges the memory budget for output that the client does not accept: for the send queue,
    /// and for a TLS record or a frame of HTTP/2, of which the queue has no part any more.
    pub(super) fn charge_blocked(&self) {
        if self.queue_charge.bytes() == 0 {
            self.charge_output(self.pending().max(1));
        }
    }

    fn charge_output(&self, len: usize) {
        let has = self.queue_charge.bytes();
        let needs = len.next_multiple_of(QUEUE_STEP);
        if needs <= has {
            return;
        }
        if self.shared.connections.admit(self.peer, Share::Outgoing, has, needs - has) {
            self.queue_charge.set(needs);
        } else {
            self.evict_for(Share::Outgoing);
        }
    }

    /// Charges the memory budget for input of the client that TLS holds. If the budget is
    /// exhausted, closes the WebSocket.
    pub(super) fn charge_tls_input(&self) {
        let held = self.transport.borrow().as_ref().and_then(Transport::held_input);
        if let Some(held) = held {
            self.charge_connection(WEBSOCKET_TLS_BYTES + held);
        }
    }

    /// Charges the memory budget for trailers of the HTTP/2 stream, of which h2 holds `bytes`
    /// bytes. If the budget is exhausted, closes the WebSocket.
    pub(super) fn charge_stream_trailers(&self, bytes: usize) {
        if bytes > 0 {
            self.charge_connection(WEBSOCKET_BYTES + bytes);
        }
    }

    fn charge_connection(&self, needs: usize) {
        let has = self.connection_charge.bytes();
        if needs == has || self.own_pending_release.get() > 0 {
            return;
        }
        if needs > has
            && !self.shared.connections.admit(self.peer, Share::Connections, has, needs - has)
        {
            return self.evict_for(Share::Connections);
        }
        self.connection_charge.set(needs);
    }

    /// Charges the memory budget for an incoming message that is not complete yet. If the budget is
    /// exhausted, closes the WebSocket and returns false.
    pub(super) fn charge_message(&self, capacity: usize) -> bool {
        let has = self.message_charge.bytes();
        let needs = if capacity <= UNCHARGED_MESSAGE_BYTES { 0 } else { capacity };
        if needs <= has {
            self.message_charge.set(needs);
            return true;
        }
        if !self.shared.connections.admit(self.peer, Share::Incoming, has, needs - has) {
            self.evict_for(Share::Incoming);
            return false;
        }
        self.message_charge.set(needs);
        true
    }

    /// Returns how many bytes of the memory budget would be freed if this WebSocket were closed.
    /// Only the bytes that are charged to `share`, a part of the budget, count.
    pub(super) fn evictable_bytes(&self, share: Share) -> usize {
        match (share, self.state()) {
            (_, WebSocketState::Closed) => 0,
            (Share::Connections, _) if self.own_pending_release.get() == 0 => {
                self.connection_charge.bytes()
            }
            (Share::Incoming, _) if self.pending_release.get() == 0 => self.message_charge.bytes(),
            // A WebSocket that is already closing may take its time to write the rest.
            (Share::Outgoing, WebSocketState::Closing)
                if self.queue_charge.bytes() <= QUEUE_STEP =>
            {
                0
            }
            (Share::Outgoing, _) => self.queue_charge.bytes(),
            _ => 0,
        }
    }

    /// Records that the WebSocket itself needs no memory any more.
    pub(super) fn on_freed(&self) {
        self.shared
            .connections
            .finish_pending_release(Share::Connections, self.own_pending_release.take());
        self.connection_charge.set(0);
    }

    /// Closes the WebSocket with close code 1013 (try again later), because the given share of the
    /// memory budget is exhausted. Skips the closing handshake if too much output is queued before
    /// the close frame, or if the share is that for connections.
    pub(super) fn evict_for(&self, share: Share) {
        if share == Share::Connections {
            // A closing handshake would keep the memory for seconds.
            let bytes = self.connection_charge.bytes();
            self.shared.connections.add_pending_release(Share::Connections, bytes);
            self.own_pending_release.set(bytes);
            return self.close_now(Rejection::Overload, OVERLOADED);
        }
        let was_closing = self.state() == WebSocketState::Closing;
        self.close_for_overload(Rejection::Overload, OVERLOADED);
        if share == Share::Incoming {
            // The buffer belongs to the task, which frees it when it is polled next.
            let leaving = self.message_charge.bytes();
            self.shared.connections.add_pending_release(Share::Incoming, leaving);
            self.pending_release.set(leaving);
            self.is_evicted.set(true);
        }
        let len = self.pending();
        if len > MAX_QUEUE_WHILE_CLOSING || (was_closing && share == Share::Outgoing) {
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

    /// Removes the memory charge for the incomplete incoming message, after the WebSocket's task
    /// has dropped this message for lack of memory.
    pub(super) fn on_message_dropped(&self) {
        self.shared
            .connections
            .finish_pending_release(Share::Incoming, self.pending_release.take());
        self.message_charge.set(0);
    }
}
