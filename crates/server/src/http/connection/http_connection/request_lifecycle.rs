//! The life of a request on an HTTP connection, from its beginning to the last byte of the
//! response. This module also frees the connection's buffers between requests.

use std::rc::Rc;
use std::task::Context;

use bytes::BytesMut;
use rookery_exchange::StreamEnd;

use super::{CloseState, HttpConnection};
use crate::connections::admission::{UNCHARGED_BYTES, bytes_in_use};
use crate::connections::table::TableEntry as _;
use crate::http::connection::activity::Phase;
use crate::http::request::context_pool::ContextParts;
use crate::http::response::stream::response_stream::ResponseStream;

impl HttpConnection {
    /// Begins a new request on the connection. If the previous response is not completely written
    /// yet, completes its access log record and its span now.
    pub(crate) fn begin_request(&self) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.end_records();
        }
        self.enter(Phase::Body);
        self.shared.head_start.forget();
        self.is_parked.set(false);
        self.has_unread_input.set(false);
        self.wait_end.set(None);
        self.activity.request_bytes.set(UNCHARGED_BYTES);
        self.set_open_files(&self.activity.request_files, 0);
    }

    /// Keeps the reusable parts of a request context (the server's data about a request) until the
    /// last byte of the response has been written.
    pub(crate) fn begin_flush(&self, parts: Box<ContextParts>) {
        if let Some(before) = self.flushing.replace(Some(parts)) {
            let both = before.response_charge.bytes();
            self.shared.recycle(before);
            if let Some(parts) = &*self.flushing.borrow() {
                parts.response_charge.set(parts.response_charge.bytes() + both);
            }
        }
        if matches!(self.activity.phase(), Phase::Response | Phase::Stream) {
            self.enter(Phase::Flush);
        }
    }

    pub(super) fn end_flush(&self) {
        self.activity.response_bytes.set(0);
        self.set_open_files(&self.activity.response_files, 0);
        if let Some(parts) = self.flushing.take() {
            self.shared.recycle(parts);
        }
        self.end_response_stream(StreamEnd::Done);
    }

    // ---- streamed responses ----

    /// Begins a streamed response on the connection.
    pub(crate) fn begin_response_stream(&self, stream: &Rc<ResponseStream>) {
        stream.set_connection_key(self.key.get());
        let limits = self.shared.connections.limits();
        self.transport.borrow().set_for_streaming(limits.idle_timeout);
        self.response_stream.replace(Some(Rc::clone(stream)));
        self.enter(Phase::Stream);
        if self.close_state.get() == CloseState::AfterResponse {
            stream.stop();
        }
    }

    /// Returns true if the request body may be passed to the application chunk by chunk, which
    /// requires that the connection stays open. If an HTTP/1.1 connection was to close after the
    /// current response, closes it at once and returns false.
    pub(crate) fn begin_body_stream(&self) -> bool {
        let ends = self.close_state.get() == CloseState::AfterResponse && !self.is_http2_stream;
        if ends {
            self.close_state.set(CloseState::Now);
        }
        !ends && !self.close_state.get().is_immediate()
    }

    /// Returns the streamed response of the current request, if there is one.
    pub(crate) fn response_stream(&self) -> Option<Rc<ResponseStream>> {
        self.response_stream.borrow().clone()
    }

    pub(super) fn on_stream_flushed(&self) {
        let is_to_be_polled =
            self.response_stream.borrow().as_ref().is_some_and(|stream| stream.on_flushed());
        if is_to_be_polled {
            self.wake();
        }
    }

    /// Returns true if the streamed response cannot continue, because it has failed or the client
    /// has disconnected. A FIN from the client also counts as a disconnect while the response is
    /// incomplete.
    pub(crate) fn detect_stream_end(&self, cx: &mut Context<'_>) -> bool {
        let stream = self.response_stream.borrow();
        let is_cut = stream.as_ref().is_some_and(|stream| stream.is_cut());
        let is_handed_over = || stream.as_ref().is_some_and(|stream| stream.is_fully_taken());
        is_cut || self.detect_disconnect(cx) || (self.is_half_closed.get() && !is_handed_over())
    }

    /// Returns true if the rest of the streamed response can be written without hyper.
    pub(crate) fn can_detach_from_hyper(&self) -> bool {
        let stream = self.response_stream.borrow();
        self.activity.phase() == Phase::Stream
            && stream.as_ref().is_some_and(|stream| stream.can_detach())
    }

    /// Begins to write the rest of the streamed response without hyper, which has been dropped.
    /// `read` is the number of bytes of the next request that hyper had already read.
    pub(crate) fn detach_from_hyper(&self, read: usize) {
        // Dropping hyper ended the request context. Its parts are kept until the last byte has been
        // written.
        self.enter(Phase::Stream);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.buffer = BytesMut::new();
        }
        if read == 0 {
            self.unpark();
            self.release_buffer();
        }
        self.shared.connections.trim.schedule();
    }

    /// Adds `bytes` response bytes, which were written without hyper, to the request's access log
    /// record.
    pub(crate) fn count_response_bytes(&self, bytes: usize) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.pending_record.add_bytes(bytes);
        }
    }

    /// Completes a streamed response whose last byte was written without hyper.
    pub(crate) fn on_stream_written(&self) {
        let closes_connection =
            self.response_stream.borrow().as_ref().is_some_and(|stream| stream.closes_connection());
        self.enter(Phase::Flush);
        self.on_all_written();
        if closes_connection {
            self.close_state.set(CloseState::Now);
        }
    }

    pub(super) fn end_response_stream(&self, reason: StreamEnd) {
        if let Some(stream) = self.response_stream.take() {
            self.shared.response_streams.end(&stream, reason);
        }
    }

    /// Sets the reason why an incomplete response ends, unless a reason is set already.
    pub(super) fn set_end_reason(&self, reason: StreamEnd) {
        self.end_reason.set(self.end_reason.get().or(Some(reason)));
        if let Some(stream) = &*self.response_stream.borrow() {
            stream.set_end_reason(reason);
        }
    }

    /// Returns true if the connection is idle, and has been idle for so long that its buffers
    /// should be freed, or is short of memory.
    pub(crate) fn can_park(&self) -> bool {
        self.activity.phase() == Phase::Idle
            && (self.is_parked.get() || self.shared.connections.is_short_of_connection_memory())
    }

    /// Marks the connection as active again after its buffers were freed.
    pub(crate) fn unpark(&self) {
        self.is_parked.set(false);
        self.activity.on_parked();
    }

    /// Frees the memory charge for the connection's enlarged read buffer. The charge for a buffer
    /// of the initial size remains.
    pub(crate) fn release_buffer(&self) {
        self.buffer.set(UNCHARGED_BYTES);
        self.charge.set(bytes_in_use(self.has_tls()));
    }
}
