//! The state of a streamed response: the queue of its chunks, and how much has been written.
//!
//! # Invariants
//! - hyper holds at most [`MAX_IN_HYPER`] bytes of the response. Further chunks stay in the queue.
//! - Bytes count as waiting until hyper has written them. If the client reads slowly, the count
//!   therefore rises and the application has to wait.
//! - The application is notified exactly once that the response has ended, by
//!   [`ResponseStream::report_end`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use rookery_exchange::{
    Charge, Event, Exchange, ListenerId, Payload, Peer, Share, StreamEnd, StreamFlow, StreamId,
    StreamOptions, StreamedBody,
};

use crate::application::dispatch::Dispatch;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::rate::ticks;
use crate::connections::table::ConnectionTable;

/// The maximum number of unwritten bytes of a streamed response that are passed to hyper. It is
/// low, because the client gets bytes that are in hyper even if the response has failed in the
/// meantime. A lower maximum would require more writes.
const MAX_IN_HYPER: usize = 256 << 10;

/// The size in bytes below which queued chunks of a response are joined. Joining saves memory and
/// bandwidth, because each separate chunk costs about 100 bytes of memory and, over HTTP/1.1, a
/// line with its size.
const MAX_JOINED: usize = 16 << 10;

/// The heartbeat of an event stream: an empty event with only a comment, which keeps the connection
/// alive.
const HEARTBEAT: &[u8] = b":\n\n";

/// The range of the delay, in milliseconds, after which the clients of an event stream reconnect
/// when the server has stopped. The delay is random, so that the clients do not all reconnect at
/// once.
const RETRY_MILLIS: std::ops::Range<u64> = 3000..8000;

/// The delay after which the server again requests a chunk from an application that had none.
const EMPTY_PULL_DELAY: Duration = Duration::from_millis(10);

/// A streamed response, whose body the application produces chunk by chunk. The connection keeps it
/// until the last byte has been written.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    id: StreamId,
    listener: ListenerId,
    peer: Peer,
    /// The key of the client's connection in the connection table, once the connection has begun
    /// the response.
    connection_key: Cell<usize>,
    connections: Rc<ConnectionTable>,
    dispatch: Rc<Dispatch>,
    pub(crate) rules: StreamOptions,
    flow: std::sync::Arc<StreamFlow>,
    /// The chunks of the response that hyper has not got yet.
    queue: RefCell<VecDeque<Bytes>>,
    /// The total number of bytes in the queue.
    queued: Cell<usize>,
    /// The last chunk of the queue, to which further short chunks are appended.
    joined: RefCell<BytesMut>,
    /// The number of response bytes that hyper has got but not written.
    in_hyper: Cell<usize>,
    /// The total number of response bytes that were passed to hyper so far.
    sent: Cell<u64>,
    /// True if hyper has bytes of the response, including its head, that are not written yet.
    is_unflushed: Cell<bool>,
    /// The number of bytes of the chunk that is being compressed before hyper gets it.
    compressing: Cell<usize>,
    state: Cell<State>,
    /// The clock tick at which the last byte of an event stream was queued.
    last_sent: Cell<u32>,
    /// True if the bytes that were queued last end exactly at the end of an event.
    is_between_events: Cell<bool>,
    /// True if the response head may be sent before the application has produced a chunk.
    sends_head_early: Cell<bool>,
    /// True once hyper has got the response head.
    is_head_sent: Cell<bool>,
    /// The way in which the rest of the response can be written without hyper, if it can.
    detachable: Cell<Detachable>,
    /// True if the server has requested a chunk from the application.
    is_chunk_requested: Cell<bool>,
    /// True while the server waits before it requests a chunk again, because the application had
    /// none.
    is_pull_delayed: Rc<Cell<bool>>,
    /// The reason why the streamed response ended, once it has ended.
    end_reason: Cell<Option<StreamEnd>>,
    /// The text of the error response that is sent if the application fails before the response
    /// head was sent.
    failure_text: RefCell<Vec<u8>>,
    /// True once the application has been notified that the streamed response has ended.
    is_end_reported: Cell<bool>,
    charge: Charge,
}

/// The state of a streamed response from the application's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The application may send further chunks of the response.
    Open,
    /// The application has sent all chunks of the response.
    Ended,
    /// The streamed response has failed and stays incomplete. Its earlier chunks are written, and
    /// then the connection is reset.
    Failed,
}

/// The way in which the rest of a streamed response can be written without hyper, if it can. The
/// response must be sent in chunks and must not be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detachable {
    No,
    KeepAlive,
    /// The response can be written without hyper, and the connection closes after it.
    Close,
}

/// The result of asking a streamed response for the next chunk to pass to hyper.
pub(crate) enum NextChunk {
    Chunk(Bytes),
    /// No chunk is available yet. The connection's task is woken when there is one.
    Wait,
    CloseState,
}

impl ResponseStream {
    pub(crate) fn new(
        connections: &Rc<ConnectionTable>,
        dispatch: &Rc<Dispatch>,
        exchange: &Exchange,
        parts: StreamedBody,
    ) -> Rc<ResponseStream> {
        Rc::new(ResponseStream {
            id: exchange.id(),
            listener: exchange.listener(),
            peer: exchange.peer(),
            connection_key: Cell::new(usize::MAX),
            connections: Rc::clone(connections),
            dispatch: Rc::clone(dispatch),
            rules: parts.rules,
            flow: parts.flow,
            queue: RefCell::default(),
            queued: Cell::new(0),
            joined: RefCell::default(),
            in_hyper: Cell::new(0),
            sent: Cell::new(0),
            is_unflushed: Cell::new(false),
            compressing: Cell::new(0),
            state: Cell::new(State::Open),
            last_sent: Cell::new(connections.clock.now()),
            is_between_events: Cell::new(true),
            sends_head_early: Cell::new(parts.rules.sends_head_first),
            is_head_sent: Cell::new(false),
            detachable: Cell::new(Detachable::No),
            is_chunk_requested: Cell::new(false),
            is_pull_delayed: Rc::default(),
            end_reason: Cell::new(None),
            failure_text: RefCell::default(),
            is_end_reported: Cell::new(false),
            charge: Charge::new(&connections.budget, Share::Outgoing),
        })
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the `Content-Length` that the application declared for the streamed response.
    pub(crate) fn length(&self) -> Option<u64> {
        self.flow.length()
    }

    /// Returns how many bytes hyper still has to get until the declared `Content-Length` is
    /// reached, or `None` if no length was declared.
    pub(crate) fn bytes_left(&self) -> Option<u64> {
        self.length().map(|length| length.saturating_sub(self.sent.get()))
    }

    /// Returns the number of bytes that are charged to the memory budget for the streamed response.
    pub(crate) fn held(&self) -> usize {
        self.charge.bytes()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.get() == State::Open
    }

    // ---- called for the application ----

    /// Queues the application's next chunk of the response. `continues` is true if the application
    /// will send the following chunk without being asked for it.
    pub(crate) fn push(&self, payload: Payload, continues: bool) {
        self.flow.on_chunk_arrived();
        self.is_chunk_requested.set(continues);
        let len = payload.as_bytes().len();
        if self.state.get() != State::Open {
            self.release_bytes(len);
            return self.dispatch.recycle_payload(payload);
        }
        if len == 0 {
            self.dispatch.recycle_payload(payload);
            return self.delay_pull();
        }
        if self.rules.is_events {
            self.last_sent.set(self.connections.clock.now());
            self.is_between_events.set(payload.as_bytes().ends_with(b"\n\n"));
        }
        match payload {
            Payload::Pooled(bytes) if len < MAX_JOINED => {
                self.append_short(&bytes);
                self.dispatch.application.recycle_buffer(bytes);
            }
            Payload::Pooled(bytes) | Payload::Charged(bytes, _) => {
                self.enqueue(Bytes::from(bytes));
            }
            Payload::Lent(lease) => self.enqueue(Bytes::from_owner(lease)),
        }
        self.queued.set(self.queued.get() + len);
        if self.charge_queue() { self.wake() } else { self.fail(StreamEnd::Slow, Vec::new()) }
    }

    fn append_short(&self, bytes: &[u8]) {
        let mut joined = self.joined.borrow_mut();
        if joined.len() + bytes.len() > MAX_JOINED {
            self.queue.borrow_mut().push_back(joined.split().freeze());
        }
        joined.put_slice(bytes);
    }

    /// Queues bytes that the server itself adds to an event stream, such as a heartbeat.
    fn append_own(&self, bytes: &[u8]) {
        self.flow.add_server_bytes(bytes.len());
        self.queued.set(self.queued.get() + bytes.len());
        self.append_short(bytes);
        self.last_sent.set(self.connections.clock.now());
    }

    /// Sends a comment on an event stream if no event has been sent for the heartbeat interval.
    pub(crate) fn send_heartbeat_if_due(&self, now: u32) {
        let clock = &self.connections.clock;
        let silence =
            ticks(Duration::from_secs(self.rules.heartbeat.into()), clock.ticks().length).max(1);
        let is_due = self.rules.heartbeat > 0 && now.wrapping_sub(self.last_sent.get()) >= silence;
        // If bytes are queued, the client does not read, and a heartbeat would not help.
        let is_idle = self.is_head_sent.get()
            && self.is_open()
            && self.queued.get() + self.in_hyper.get() == 0;
        if is_due && is_idle && self.is_between_events.get() {
            self.append_own(HEARTBEAT);
            self.wake();
        }
    }

    fn enqueue(&self, bytes: Bytes) {
        let joined = self.joined.borrow_mut().split().freeze();
        let mut queue = self.queue.borrow_mut();
        if !joined.is_empty() {
            queue.push_back(joined);
        }
        queue.push_back(bytes);
    }

    /// Charges the memory budget for the queued bytes of the response. Returns false if the budget
    /// is exhausted.
    fn charge_queue(&self) -> bool {
        let waiting = self.queued.get() + self.in_hyper.get();
        let (has, needs) =
            (self.charge.bytes(), if waiting <= UNCHARGED_BYTES { 0 } else { waiting });
        let has_room =
            needs <= has || self.connections.admit(self.peer, Share::Outgoing, has, needs - has);
        // Admitting the bytes may have evicted this stream itself.
        if has_room && self.state.get() != State::Failed {
            self.charge.set(needs);
        }
        has_room
    }

    /// Allows the response head to be sent before the application has produced a chunk.
    pub(crate) fn send_head(&self) {
        self.sends_head_early.set(true);
        self.wake();
    }

    /// Ends the streamed response. If its actual length differs from its declared length, it counts
    /// as failed.
    pub(crate) fn end(&self) {
        if self.state.get() != State::Open {
            return;
        }
        let has = self.sent.get() + self.queued.get() as u64;
        if self.length().is_some_and(|length| length != has) {
            return self.fail(StreamEnd::Error, Vec::new());
        }
        self.state.set(State::Ended);
        self.wake();
    }

    /// Ends the streamed response before it is complete. The client gets `failure_text` if the
    /// response head was not sent yet.
    pub(crate) fn fail(&self, reason: StreamEnd, failure_text: Vec<u8>) {
        if self.state.get() != State::Open {
            return;
        }
        self.state.set(State::Failed);
        // If the server stops and bytes of the declared length are missing, the reason remains the
        // stop.
        self.set_end_reason(reason);
        self.failure_text.replace(failure_text);
        if !matches!(reason, StreamEnd::Error | StreamEnd::Stop) {
            // The client does not read, so queued bytes are not waited for.
            self.drop_queue();
            self.is_unflushed.set(false);
        }
        self.wake();
    }

    /// Ends the streamed response if it is an event stream. Called when the server begins to drain,
    /// so that the client can reconnect to another server. Any other response continues until the
    /// application ends it, because the client could mistake a part of it for all of it.
    pub(crate) fn stop(&self) {
        if self.rules.is_events {
            self.end_for_stop();
        }
    }

    /// Ends the streamed response because the application that produces it stops. Tells a client of
    /// events when to reconnect. Any other response stays incomplete.
    pub(crate) fn end_for_stop(&self) {
        if !self.is_open() {
            return;
        }
        if !self.rules.is_events {
            return self.fail(StreamEnd::Stop, Vec::new());
        }
        self.end_reason.set(Some(StreamEnd::Stop));
        if self.is_between_events.get() {
            // The ids are not random, so they are hashed.
            let spread = self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let retry = RETRY_MILLIS.start + spread % (RETRY_MILLIS.end - RETRY_MILLIS.start);
            self.append_own(format!("retry: {retry}\n\n").as_bytes());
        }
        self.end();
    }

    /// Sets the reason why the streamed response ended, unless a reason is set already.
    pub(crate) fn set_end_reason(&self, reason: StreamEnd) {
        if self.end_reason.get().is_none() {
            self.end_reason.set(Some(reason));
        }
    }

    /// Returns the reason why the streamed response ended, if it has ended.
    pub(crate) fn end_reason(&self) -> Option<StreamEnd> {
        self.end_reason.get()
    }

    // ---- pulling ----

    /// Asks the application for a chunk, if the server requests the chunks of this response one by
    /// one and the queue has capacity.
    pub(crate) fn request_chunk(&self) {
        let has_room = self.flow.has_capacity() && self.bytes_left() != Some(0);
        let is_due =
            self.rules.is_pulled && self.is_open() && has_room && !self.is_pull_delayed.get();
        if is_due && !self.is_chunk_requested.replace(true) {
            let pull = Event::Pull { stream: self.id, listener: self.listener };
            self.dispatch.notify(self.peer, pull);
        }
    }

    /// Records that the application no longer sends chunks without being asked, so that the server
    /// must request the next chunk.
    pub(crate) fn resume_pulling(&self) {
        self.is_chunk_requested.set(false);
        self.wake();
    }

    /// Delays the server's next request for a chunk, because the application had no chunk ready.
    fn delay_pull(&self) {
        if self.rules.is_pulled && !self.is_pull_delayed.replace(true) {
            // By then, the stream may have ended and the key may belong to another connection.
            // Waking that one needlessly is harmless.
            let (connections, connection_key, is_pull_delayed) = (
                Rc::clone(&self.connections),
                self.connection_key.get(),
                Rc::clone(&self.is_pull_delayed),
            );
            tokio::task::spawn_local(async move {
                tokio::time::sleep(EMPTY_PULL_DELAY).await;
                is_pull_delayed.set(false);
                connections.wake(connection_key);
            });
        }
    }

    // ---- called for the connection ----

    /// Sets the connection-table key of the client's connection.
    pub(crate) fn set_connection_key(&self, key: usize) {
        self.connection_key.set(key);
    }

    /// Returns true if the response head can be sent, either because a chunk is available or
    /// because the head need not wait for one.
    pub(crate) fn can_send_head(&self) -> bool {
        self.sends_head_early.get()
            || self.queued.get() > 0
            || !self.is_open()
            || self.length() == Some(0)
    }

    /// Returns the status code and the text of the error response, if the streamed response failed
    /// before anything was sent. The status code is `None` unless the application chose one.
    pub(crate) fn take_failure(&self) -> Option<(Option<u16>, Vec<u8>)> {
        let status = Some(self.flow.failed_status()).filter(|status| *status > 0);
        (self.state.get() == State::Failed).then(|| (status, self.failure_text.take()))
    }

    /// Records that hyper has got the response head. If the response is an event stream and has no
    /// event yet, queues a first heartbeat.
    pub(crate) fn on_head_sent(&self) {
        self.is_head_sent.set(true);
        self.is_unflushed.set(true);
        if self.rules.is_events
            && self.sent.get() + self.queued.get() as u64 == 0
            && self.length().is_none()
        {
            // Some proxies forward a head only together with the first byte of the body.
            self.append_own(HEARTBEAT);
        }
    }

    /// Sets whether the rest of the response can be written without hyper.
    pub(crate) fn set_detachable(&self, detachable: Detachable) {
        self.detachable.set(detachable);
    }

    /// Returns true if the connection must close after this streamed response.
    pub(crate) fn closes_connection(&self) -> bool {
        self.detachable.get() == Detachable::Close
    }

    /// Returns true if hyper is no longer needed for this response, because it has written
    /// everything so far and the next chunk may take long.
    pub(crate) fn can_detach(&self) -> bool {
        let is_written =
            self.is_head_sent.get() && !self.is_unflushed.get() && self.queued.get() == 0;
        self.detachable.get() != Detachable::No && is_written && self.is_open()
    }

    /// Returns true if hyper has bytes of the response that have not been flushed to the client.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.is_unflushed.get()
    }

    /// Returns true if the streamed response has failed and all chunks before the failure have been
    /// written.
    pub(crate) fn is_cut(&self) -> bool {
        let is_written =
            self.queued.get() == 0 && !self.is_unflushed.get() && self.compressing.get() == 0;
        self.state.get() == State::Failed && self.is_head_sent.get() && is_written
    }

    /// Returns the next chunk of the response to pass to hyper. If there is none, asks the
    /// application for a chunk.
    pub(crate) fn next_chunk(&self) -> NextChunk {
        if let Some(bytes) = self.take_queued() {
            return NextChunk::Chunk(bytes);
        }
        match self.state.get() {
            State::Ended if self.queued.get() == 0 => NextChunk::CloseState,
            _ => {
                self.request_chunk();
                NextChunk::Wait
            }
        }
    }

    /// Takes the next chunk of the response from the queue. Returns `None` if the queue is empty,
    /// or if enough bytes have been taken that are not written yet.
    pub(crate) fn take_queued(&self) -> Option<Bytes> {
        if self.in_hyper.get() >= MAX_IN_HYPER {
            return None;
        }
        let bytes = self.pop()?;
        self.queued.set(self.queued.get() - bytes.len());
        self.in_hyper.set(self.in_hyper.get() + bytes.len());
        self.sent.set(self.sent.get() + bytes.len() as u64);
        self.is_unflushed.set(true);
        Some(bytes)
    }

    /// Returns true if the streamed response is complete and hyper has got all of it.
    pub(crate) fn is_fully_taken(&self) -> bool {
        self.state.get() == State::Ended && self.queued.get() == 0
    }

    /// Returns true if the next chunk of the response is available.
    pub(crate) fn has_queued(&self) -> bool {
        self.queued.get() > 0
    }

    /// Records that the next chunk, of `len` bytes, is compressed before hyper gets it.
    /// `was_unflushed` is true if hyper already had unflushed bytes.
    pub(crate) fn begin_compression(&self, len: usize, was_unflushed: bool) {
        self.compressing.set(len);
        self.is_unflushed.set(was_unflushed);
    }

    /// Records that the current chunk has been compressed. If `has_output` is false (the compressor
    /// has not produced any output for the chunk yet), the bytes of the chunk no longer count as
    /// unwritten.
    pub(crate) fn end_compression(&self, has_output: bool) {
        let len = self.compressing.take();
        if has_output {
            self.is_unflushed.set(true);
        } else {
            self.in_hyper.set(self.in_hyper.get().saturating_sub(len));
            self.release_bytes(len);
        }
    }

    fn pop(&self) -> Option<Bytes> {
        let mut queue = self.queue.borrow_mut();
        let Some(first) = queue.front_mut() else {
            let joined = self.joined.borrow_mut().split().freeze();
            return Some(joined).filter(|joined| !joined.is_empty());
        };
        if first.len() > MAX_IN_HYPER {
            Some(first.split_to(MAX_IN_HYPER))
        } else {
            queue.pop_front()
        }
    }

    /// Records that hyper has written all bytes that it had. Returns true if the caller must poll
    /// the connection again.
    pub(crate) fn on_flushed(&self) -> bool {
        self.is_unflushed.set(false);
        let compressing = self.compressing.get();
        let written = self.in_hyper.replace(compressing) - compressing;
        self.release_bytes(written);
        self.request_chunk();
        // The compression task wakes the connection by itself.
        compressing == 0 && (self.queued.get() > 0 || !self.is_open())
    }

    /// Subtracts `len` bytes, which have been written or dropped, from the number of unwritten
    /// bytes of the response. Notifies the application if the response can take more chunks again.
    fn release_bytes(&self, len: usize) {
        if self.charge.bytes() > 0 {
            let waiting = self.queued.get() + self.in_hyper.get();
            self.charge.set(if waiting <= UNCHARGED_BYTES { 0 } else { waiting });
        }
        if self.flow.on_written(len) && !self.is_end_reported.get() {
            let writable = Event::Writable { stream: self.id, listener: self.listener };
            self.dispatch.notify(self.peer, writable);
        }
    }

    fn drop_queue(&self) {
        self.queue.borrow_mut().clear();
        self.joined.replace(BytesMut::new());
        self.queued.set(0);
        self.charge.set(0);
    }

    /// Drops the queued chunks, and notifies the application that the streamed response has ended.
    /// Does nothing if the application has already been notified. If the response already has an
    /// end reason, `reason` is ignored.
    pub(crate) fn report_end(&self, reason: StreamEnd) {
        if self.is_end_reported.replace(true) {
            return;
        }
        self.drop_queue();
        self.flow.end();
        // The application is not notified of this capacity, because the stream has ended.
        self.flow.on_written(self.in_hyper.take());
        let reason = self.end_reason.get().unwrap_or(reason);
        let ended = Event::StreamEnded { stream: self.id, listener: self.listener, reason };
        self.dispatch.notify(self.peer, ended);
    }

    fn wake(&self) {
        self.connections.wake(self.connection_key.get());
    }
}
