//! What a connection does for its calls: one begins, its reply is flushed, or comes in pieces; and between two of them it may be parked.

use std::rc::Rc;
use std::task::Context;

use bytes::BytesMut;
use rookery_exchange::StreamEnd;

use super::{End, HttpConnection, connection_bytes};
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
        self.has_rest.set(false);
        self.is_overdue.set(false);
        self.activity.request.set(UNCHARGED_BYTES);
    }

    /// The reply of a call has been made: what is left of the call is kept until its last byte has been written.
    pub(crate) fn flush(&self, parts: Box<ContextParts>) {
        if let Some(before) = self.flushing.replace(Some(parts)) {
            let both = before.reply.bytes();
            self.shared.keep(before);
            if let Some(parts) = &*self.flushing.borrow() {
                parts.reply.set(parts.reply.bytes() + both);
            }
        }
        if matches!(self.activity.phase(), Phase::Reply | Phase::Stream) {
            self.enter(Phase::Flush);
        }
    }

    pub(super) fn end_flush(&self) {
        self.activity.reply.set(0);
        if let Some(parts) = self.flushing.take() {
            self.shared.keep(parts);
        }
        self.end_stream(StreamEnd::Done);
    }

    // ---- a reply that comes in pieces ----

    /// Its reply is a stream.
    pub(crate) fn stream(&self, stream: &Rc<ResponseStream>) {
        stream.join_peer(self.key.get());
        let limits = &self.shared.connections.limits;
        self.transport.borrow().set_for_streaming(limits.idle_time);
        self.stream.replace(Some(Rc::clone(stream)));
        self.enter(Phase::Stream);
        if self.end.get() == End::AfterReply {
            stream.stop();
        }
    }

    /// Whether it goes on with a request's body, as the application wishes. One that ends with its reply does not: it would end now, had
    /// the application wished it a moment earlier. Of HTTP/2 whatever has begun is served.
    pub(crate) fn may_receive(&self) -> bool {
        let ends = self.end.get() == End::AfterReply && !self.is_stream;
        if ends {
            self.end.set(End::Now);
        }
        !ends && !self.end.get().is_now()
    }

    /// The stream that is its reply.
    pub(crate) fn open_stream(&self) -> Option<Rc<ResponseStream>> {
        self.stream.borrow().clone()
    }

    pub(super) fn has_flushed_stream(&self) {
        let is_to_be_polled =
            self.stream.borrow().as_ref().is_some_and(|stream| stream.has_flushed());
        if is_to_be_polled {
            self.wake();
        }
    }

    /// Whether there is nothing to be said any more to the client of a stream: it has gone, which a FIN tells as well while more may
    /// come, or the stream has failed.
    pub(crate) fn is_stream_over(&self, cx: &mut Context<'_>) -> bool {
        let stream = self.stream.borrow();
        let is_cut = stream.as_ref().is_some_and(|stream| stream.is_cut());
        let is_handed_over = || stream.as_ref().is_some_and(|stream| stream.is_handed_over());
        is_cut || self.is_reset(cx) || (self.is_half_closed.get() && !is_handed_over())
    }

    /// Whether its stream goes on without hyper.
    pub(crate) fn leaves_hyper(&self) -> bool {
        let stream = self.stream.borrow();
        self.activity.phase() == Phase::Stream
            && stream.as_ref().is_some_and(|stream| stream.leaves_hyper())
    }

    /// hyper is gone, and has left `read` bytes of what comes next; its stream goes on.
    pub(crate) fn goes_on_without_hyper(&self, read: usize) {
        // The call ended with hyper: what is left of it is kept until the last byte of its reply has been written.
        self.enter(Phase::Stream);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.out = BytesMut::new();
        }
        if read == 0 {
            self.unpark();
        }
        self.shared.connections.trim.schedule();
    }

    /// Counts bytes of the reply that are written without hyper, for the log.
    pub(crate) fn count_reply(&self, bytes: usize) {
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            parts.pending_record.add_bytes(bytes);
        }
    }

    /// The last byte of its stream has been written without hyper.
    pub(crate) fn has_written_stream(&self) {
        let is_last = self.stream.borrow().as_ref().is_some_and(|stream| stream.is_last());
        self.enter(Phase::Flush);
        self.has_flushed();
        if is_last {
            self.end.set(End::Now);
        }
    }

    pub(super) fn end_stream(&self, reason: StreamEnd) {
        if let Some(stream) = self.stream.take() {
            self.shared.streams.end(&stream, reason);
        }
    }

    /// Decides why what it owes its peer ends, if it is not whole by then.
    pub(super) fn decide(&self, reason: StreamEnd) {
        self.departure.set(self.departure.get().or(Some(reason)));
        if let Some(stream) = &*self.stream.borrow() {
            stream.decide(reason);
        }
    }

    /// Whether it is to give up what an idle connection does not need.
    pub(crate) fn may_park(&self) -> bool {
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
