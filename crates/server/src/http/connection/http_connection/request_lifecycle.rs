//! What a connection does for its calls: one begins, its reply is flushed, or comes in pieces; and between two of them it may be parked.

use std::rc::Rc;
use std::task::Context;

use bytes::BytesMut;
use rookery_exchange::StreamEnd;

use super::{CloseState, HttpConnection, connection_bytes};
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::table::TableEntry as _;
use crate::http::connection::activity::Phase;
use crate::http::request::context_pool::ContextParts;
use crate::http::response::stream::response_stream::ResponseStream;

impl HttpConnection {
    /// Another call begins; the one before, which has not been flushed, is done for the log.
    pub(crate) fn begin_request(&self) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.pending_record.end();
        }
        self.enter(Phase::Body);
        self.is_parked.set(false);
        self.has_unread_input.set(false);
        self.has_request_timed_out.set(false);
        self.activity.request_bytes.set(UNCHARGED_BYTES);
    }

    /// The reply of a call has been made: what is left of the call is kept until its last byte has been written.
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
        if let Some(parts) = self.flushing.take() {
            self.shared.recycle(parts);
        }
        self.end_response_stream(StreamEnd::Done);
    }

    // ---- a reply that comes in pieces ----

    /// Its reply is a stream.
    pub(crate) fn begin_response_stream(&self, stream: &Rc<ResponseStream>) {
        stream.set_connection_key(self.key.get());
        let limits = &self.shared.connections.limits;
        self.transport.borrow().set_for_streaming(limits.idle_time);
        self.response_stream.replace(Some(Rc::clone(stream)));
        self.enter(Phase::Stream);
        if self.close_state.get() == CloseState::AfterResponse {
            stream.stop();
        }
    }

    /// Whether it goes on with a request's body, as the application wishes. One that ends with its reply does not: it would end now, had
    /// the application wished it a moment earlier. Of HTTP/2 whatever has begun is served.
    pub(crate) fn begin_body_stream(&self) -> bool {
        let ends = self.close_state.get() == CloseState::AfterResponse && !self.is_http2_stream;
        if ends {
            self.close_state.set(CloseState::Now);
        }
        !ends && !self.close_state.get().is_immediate()
    }

    /// The stream that is its reply.
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

    /// Whether there is nothing to be said any more to the client of a stream: it has gone, which a FIN tells as well while more may
    /// come, or the stream has failed.
    pub(crate) fn detect_stream_end(&self, cx: &mut Context<'_>) -> bool {
        let stream = self.response_stream.borrow();
        let is_cut = stream.as_ref().is_some_and(|stream| stream.is_cut());
        let is_handed_over = || stream.as_ref().is_some_and(|stream| stream.is_fully_taken());
        is_cut || self.detect_disconnect(cx) || (self.is_half_closed.get() && !is_handed_over())
    }

    /// Whether its stream goes on without hyper.
    pub(crate) fn can_detach_from_hyper(&self) -> bool {
        let stream = self.response_stream.borrow();
        self.activity.phase() == Phase::Stream
            && stream.as_ref().is_some_and(|stream| stream.can_detach())
    }

    /// hyper is gone, and has left `read` bytes of what comes next; its stream goes on.
    pub(crate) fn detach_from_hyper(&self, read: usize) {
        // The call ended with hyper: what is left of it is kept until the last byte of its reply has been written.
        self.enter(Phase::Stream);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.buffer = BytesMut::new();
        }
        if read == 0 {
            self.unpark();
        }
        self.shared.connections.trim.schedule();
    }

    /// Counts bytes of the reply that are written without hyper, for the log.
    pub(crate) fn count_response_bytes(&self, bytes: usize) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.pending_record.add_bytes(bytes);
        }
    }

    /// The last byte of its stream has been written without hyper.
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

    /// Decides why what it owes its peer ends, if it is not whole by then.
    pub(super) fn set_end_reason(&self, reason: StreamEnd) {
        self.end_reason.set(self.end_reason.get().or(Some(reason)));
        if let Some(stream) = &*self.response_stream.borrow() {
            stream.set_end_reason(reason);
        }
    }

    /// Whether it is to give up what an idle connection does not need.
    pub(crate) fn can_park(&self) -> bool {
        self.is_parked.get() && self.activity.phase() == Phase::Idle
    }

    /// It has given that up, and what it reads next needs it again.
    pub(crate) fn unpark(&self) {
        self.is_parked.set(false);
        self.activity.on_parked();
        self.release_buffer();
    }

    /// Charges the connection for nothing but itself again: what it read into beyond its first buffer has been freed.
    pub(crate) fn release_buffer(&self) {
        self.buffer.set(UNCHARGED_BYTES);
        self.charge.set(connection_bytes(self.has_tls()));
    }
}
