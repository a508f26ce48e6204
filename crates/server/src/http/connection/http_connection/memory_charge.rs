//! What a connection counts against the memory budget: itself and its read buffer.

use std::cell::Cell;

use rookery_exchange::{Peer, Share, StreamEnd};

use super::{CloseState, HttpConnection};
use crate::connections::admission::{STREAM_BYTES, UNCHARGED_BYTES, bytes_in_use, idle_bytes};
use crate::http::connection::activity::Phase;
use crate::http::http2::connection_state::Http2State;

impl HttpConnection {
    /// Charges the memory budget for the buffers of an HTTP/2 connection, which have grown or
    /// shrunk to `bytes` bytes. If the budget is exhausted, closes the connection and returns
    /// false, unless the connection is shared by the clients of a trusted proxy.
    pub(crate) fn charge_http2_buffers(&self, bytes: usize) -> bool {
        if self.close_state.get().is_immediate() {
            // The connection is polled once more, and then frees its buffers. A charge that was
            // refused is missing, so that nothing must be subtracted.
            return true;
        }
        if bytes < self.buffer.get() {
            let less = self.buffer.replace(bytes) - bytes;
            self.charge.set(self.charge.bytes() - less);
        }
        self.charge_buffer(bytes)
    }

    /// Charges the memory budget for buffers of `bytes` bytes. If the budget is exhausted, closes
    /// the connection and returns false. An HTTP/2 connection that is shared by the clients of a
    /// trusted proxy is charged nevertheless, and stays open: its own buffers are limited, and none
    /// of its clients must lose their requests for what another one uses.
    pub(crate) fn charge_buffer(&self, bytes: usize) -> bool {
        if bytes <= self.buffer.get() {
            return true;
        }
        let more = bytes - self.buffer.replace(bytes);
        let has = self.charge.bytes();
        let is_proxied = self.own_http2_state().is_some_and(Http2State::is_proxied);
        if !self.shared.connections.admit_in_use(self.peer.get(), self.serial, has, more)
            && !is_proxied
        {
            self.close_for_overload();
            return false;
        }
        self.charge.set(has + more);
        true
    }

    /// Charges the memory budget for `bytes` bytes of trailers that h2 holds for this HTTP/2
    /// stream. If the budget is exhausted, closes the stream.
    pub(super) fn charge_stream_trailers(&self, bytes: usize) {
        let (has, needs) = (self.charge.bytes(), STREAM_BYTES + bytes);
        if needs <= has || self.is_releasing() {
            return;
        }
        let peer = self.peer_of_request();
        if self.shared.connections.admit(peer, Share::Connections, has, needs - has) {
            self.charge.set(needs);
        } else {
            self.close_for_overload();
        }
    }

    /// Returns true if the memory budget is charged for the buffers of a connection in use.
    pub(crate) fn is_charged_for_use(&self) -> bool {
        self.charge.bytes() >= bytes_in_use(self.has_tls())
    }

    /// Charges the memory budget for the buffers of a connection whose client has begun to send.
    /// Returns false if the connection is being closed, or if the budget is exhausted, and then
    /// closes the connection with a 503 response.
    pub(crate) fn charge_use(&self) -> bool {
        if self.is_charged_for_use() {
            return true;
        }
        if self.close_state.get().is_immediate() {
            return false;
        }
        let (has, needs) = (self.charge.bytes(), bytes_in_use(self.has_tls()));
        if self.shared.connections.admit_in_use(self.peer.get(), self.serial, has, needs - has) {
            self.charge.set(needs);
            return true;
        }
        if self.activity.phase() == Phase::Handshake {
            self.close_for_overload();
        } else {
            self.enter(Phase::Head);
            self.set_end_reason(StreamEnd::Slow);
            self.begin_close(CloseState::Overload);
        }
        false
    }

    /// Releases the charge for the buffers of the connection, which has become idle and has freed
    /// them.
    pub(crate) fn release_use(&self) {
        self.buffer.set(UNCHARGED_BYTES);
        let held = self.transport.borrow().held_input().unwrap_or(0);
        self.charge.set(idle_bytes(self.has_tls()) + held);
    }

    /// Sets one of the two counts of the files that the connection's request and responses have
    /// open, and counts the files for the peer of the request.
    #[inline]
    pub(crate) fn set_open_files(&self, count: &Cell<usize>, files: usize) {
        let before = count.replace(files);
        if files != before {
            self.count_open_files(self.peer_of_request(), before, files);
        }
    }

    /// Counts `after` files for a peer, of which `before` have been counted.
    #[cold]
    pub(super) fn count_open_files(&self, peer: Peer, before: usize, after: usize) {
        let (open_files, key) = (&self.shared.connections.open_files, self.key.get());
        (before..after).for_each(|_| open_files.add(peer, key));
        (after..before).for_each(|_| open_files.remove(peer, key));
    }

    /// Returns true if the connection's read buffer has at most its initial size, which is charged
    /// for every connection.
    pub(crate) fn has_small_buffer(&self) -> bool {
        self.buffer.get() <= UNCHARGED_BYTES
    }
}
