//! A reply that comes in pieces: what waits of it, and how far it is.
//!
//! # Ground rules
//! - A piece counts as waiting until hyper has written it; hyper has [`MAX_IN_HYPER`] bytes of it at most. So the marks that the
//!   application goes by are about the socket, and an end that is not clean can be put behind what was written before.
//! - However it ends, its application is told once: by [`ResponseStream::depart`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use rookery_exchange::{
    Charge, Event, Exchange, ListenerId, Payload, Share, StreamEnd, StreamFlow, StreamId,
    StreamOptions, StreamedBody as Given,
};

use crate::application::dispatch::Dispatch;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::rate::ticks;
use crate::connections::table::ConnectionTable;

/// Bytes that hyper is given at once: more would wait where nothing can be said of them, and less is more writes.
const MAX_IN_HYPER: usize = 128 << 10;

/// Shorter pieces are put together while they wait: each alone costs some 100 bytes, and a chunk of its own.
const MAX_JOINED: usize = 16 << 10;

/// What keeps a connection alive on which there are no events: a comment, and the end of the event that it would be.
const HEARTBEAT: &[u8] = b":\n\n";

/// Milliseconds after which clients come again to a server that stopped: at random between the two, so that they do not come all at
/// once.
const RETRY_MILLIS: std::ops::Range<u64> = 3000..8000;

/// How soon an application that had nothing to give is asked again.
const EMPTY_PULL_DELAY: Duration = Duration::from_millis(10);

/// A reply that comes in pieces. Its connection has it from when the application has answered.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    id: StreamId,
    listener: ListenerId,
    /// The key of its connection among the peers, once that has it.
    connection_key: Cell<usize>,
    connections: Rc<ConnectionTable>,
    dispatch: Rc<Dispatch>,
    pub(crate) rules: StreamOptions,
    flow: std::sync::Arc<StreamFlow>,
    /// What hyper has not been given, and how much that is.
    queue: RefCell<VecDeque<Bytes>>,
    queued: Cell<usize>,
    /// The end of the queue, to which short pieces are added.
    joined: RefCell<BytesMut>,
    /// Bytes that hyper has and has not written.
    in_hyper: Cell<usize>,
    /// Bytes that hyper has been given so far.
    sent: Cell<u64>,
    /// Whether hyper has anything that it has not written, its head included.
    is_unflushed: Cell<bool>,
    /// Bytes of a piece that is being compressed: hyper is to have them, and has not.
    compressing: Cell<usize>,
    state: Cell<State>,
    /// The tick of the last byte, and whether an event ended with it.
    last_sent: Cell<u32>,
    is_between_events: Cell<bool>,
    /// Whether its head is to leave before there is a piece.
    sends_head_early: Cell<bool>,
    /// Whether hyper has its head.
    is_head_sent: Cell<bool>,
    /// Whether it is sent in chunks, as it is; and whether its connection ends with it.
    detachable: Cell<Detachable>,
    /// Whether the application has been asked for a piece, or is not to be asked yet.
    is_chunk_requested: Cell<bool>,
    is_pull_delayed: Rc<Cell<bool>>,
    /// How it ends, when that has been decided.
    end_reason: Cell<Option<StreamEnd>>,
    /// What the client is told if nothing has been sent.
    failure_text: RefCell<Vec<u8>>,
    /// Whether the application has been told of its end.
    is_end_reported: Cell<bool>,
    charge: Charge,
}

/// How far it is, as the application has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    /// It is whole.
    Ended,
    /// It will not be: what came before is written, and then it is cut.
    Failed,
}

/// Whether it is sent in chunks, as it is: then it may go on without hyper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detachable {
    No,
    KeepAlive,
    /// And the connection ends with it.
    Close,
}

/// What hyper is told when it asks for more.
pub(crate) enum NextChunk {
    Chunk(Bytes),
    /// Not now: the connection is woken.
    Wait,
    CloseState,
}

impl ResponseStream {
    pub(crate) fn new(
        connections: &Rc<ConnectionTable>,
        dispatch: &Rc<Dispatch>,
        exchange: &Exchange,
        given: Given,
    ) -> Rc<ResponseStream> {
        Rc::new(ResponseStream {
            id: exchange.id(),
            listener: exchange.listener(),
            connection_key: Cell::new(usize::MAX),
            connections: Rc::clone(connections),
            dispatch: Rc::clone(dispatch),
            rules: given.rules,
            flow: given.flow,
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
            sends_head_early: Cell::new(given.rules.sends_head_first),
            is_head_sent: Cell::new(false),
            detachable: Cell::new(Detachable::No),
            is_chunk_requested: Cell::new(false),
            is_pull_delayed: Rc::default(),
            end_reason: Cell::new(None),
            failure_text: RefCell::default(),
            is_end_reported: Cell::new(false),
            charge: Charge::new(&connections.budget, Share::Queues),
        })
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Its reply's Content-Length, if the application told one.
    pub(crate) fn length(&self) -> Option<u64> {
        self.flow.length()
    }

    /// Bytes of it that hyper has not been given, of those that it is to have.
    pub(crate) fn bytes_left(&self) -> Option<u64> {
        self.length().map(|length| length.saturating_sub(self.sent.get()))
    }

    /// Bytes that it is charged for.
    pub(crate) fn held(&self) -> usize {
        self.charge.bytes()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.get() == State::Open
    }

    // ---- what the application does ----

    /// Takes the next piece. Another one comes without asking if the application goes on.
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
            Payload::Pooled(bytes) => self.enqueue(Bytes::from(bytes)),
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

    /// Adds bytes of the server's own.
    fn append_own(&self, bytes: &[u8]) {
        self.flow.add_server_bytes(bytes.len());
        self.queued.set(self.queued.get() + bytes.len());
        self.append_short(bytes);
        self.last_sent.set(self.connections.clock.now());
    }

    /// Sends a comment, if its events have been silent for long.
    pub(crate) fn send_heartbeat_if_due(&self, now: u32) {
        let clock = &self.connections.clock;
        let silence =
            ticks(Duration::from_secs(self.rules.heartbeat.into()), clock.ticks.length).max(1);
        let is_due = self.rules.heartbeat > 0 && now.wrapping_sub(self.last_sent.get()) >= silence;
        // What waits is no silence, but a client that does not read.
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

    /// Charges what waits. `false` when there is no room for it.
    fn charge_queue(&self) -> bool {
        let waiting = self.queued.get() + self.in_hyper.get();
        let (has, needs) =
            (self.charge.bytes(), if waiting <= UNCHARGED_BYTES { 0 } else { waiting });
        let has_room = needs <= has || self.connections.admit(Share::Queues, has, needs - has);
        // Making room may have been at its own cost.
        if has_room && self.state.get() != State::Failed {
            self.charge.set(needs);
        }
        has_room
    }

    /// The head need not wait for a piece.
    pub(crate) fn send_head(&self) {
        self.sends_head_early.set(true);
        self.wake();
    }

    /// It is whole, unless its length is known, and is another.
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

    /// It will not be completed.
    pub(crate) fn fail(&self, reason: StreamEnd, failure_text: Vec<u8>) {
        if self.state.get() != State::Open {
            return;
        }
        self.state.set(State::Failed);
        // A stop that finds bytes of the length missing is a stop.
        self.set_end_reason(reason);
        self.failure_text.replace(failure_text);
        if reason != StreamEnd::Error {
            // Its client does not take it: what waits is not waited for.
            self.drop_queue();
            self.is_unflushed.set(false);
        }
        self.wake();
    }

    /// The server stops: what is pushed ends in order, so that its client connects to another one. What is pulled is
    /// waited for.
    pub(crate) fn stop(&self) {
        if self.is_open() && (!self.rules.is_pulled || self.rules.is_events) {
            self.end_reason.set(Some(StreamEnd::Stop));
            if self.rules.is_events && self.is_between_events.get() {
                // Of the ids of streams one is as likely as the next.
                let spread = self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                let retry = RETRY_MILLIS.start + spread % (RETRY_MILLIS.end - RETRY_MILLIS.start);
                self.append_own(format!("retry: {retry}\n\n").as_bytes());
            }
            self.end();
        }
    }

    /// Decides how it ends, unless that has been.
    pub(crate) fn set_end_reason(&self, reason: StreamEnd) {
        if self.end_reason.get().is_none() {
            self.end_reason.set(Some(reason));
        }
    }

    /// How it ends, if that has been decided.
    pub(crate) fn end_reason(&self) -> Option<StreamEnd> {
        self.end_reason.get()
    }

    // ---- asking ----

    /// Asks the application for a piece, if it is to be asked and there is room.
    pub(crate) fn request_chunk(&self) {
        let has_room = self.flow.has_capacity() && self.bytes_left() != Some(0);
        let is_due =
            self.rules.is_pulled && self.is_open() && has_room && !self.is_pull_delayed.get();
        if is_due && !self.is_chunk_requested.replace(true) {
            self.dispatch.notify(Event::Pull { stream: self.id, listener: self.listener });
        }
    }

    /// The application gives nothing more by itself.
    pub(crate) fn on_chunk_wanted(&self) {
        self.is_chunk_requested.set(false);
        self.wake();
    }

    /// The application had nothing to give.
    fn delay_pull(&self) {
        if self.rules.is_pulled && !self.is_pull_delayed.replace(true) {
            // The stream may be over by then, and another peer have the key: waking one for nothing is harmless.
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

    // ---- what its connection does ----

    /// Its connection has it.
    pub(crate) fn set_connection_key(&self, key: usize) {
        self.connection_key.set(key);
    }

    /// Whether its head can leave: with a piece, or alone.
    pub(crate) fn can_send_head(&self) -> bool {
        self.sends_head_early.get()
            || self.queued.get() > 0
            || !self.is_open()
            || self.length() == Some(0)
    }

    /// What is said instead of the reply, when it has failed before anything was sent: the status, if the application has one for that, and
    /// the text.
    pub(crate) fn take_failure(&self) -> Option<(Option<u16>, Vec<u8>)> {
        let status = Some(self.rules.failed_status).filter(|status| *status > 0);
        (self.state.get() == State::Failed).then(|| (status, self.failure_text.take()))
    }

    /// hyper has its head.
    pub(crate) fn on_head_sent(&self) {
        self.is_head_sent.set(true);
        self.is_unflushed.set(true);
        if self.rules.is_events
            && self.sent.get() + self.queued.get() as u64 == 0
            && self.length().is_none()
        {
            // A proxy passes a head on with the first byte behind it.
            self.append_own(HEARTBEAT);
        }
    }

    /// How it is sent.
    pub(crate) fn set_detachable(&self, detachable: Detachable) {
        self.detachable.set(detachable);
    }

    /// Whether the connection ends with it.
    pub(crate) fn closes_connection(&self) -> bool {
        self.detachable.get() == Detachable::Close
    }

    /// Whether hyper is not needed any more: it has written all that there is, and may have to wait for long.
    pub(crate) fn can_detach(&self) -> bool {
        let is_written =
            self.is_head_sent.get() && !self.is_unflushed.get() && self.queued.get() == 0;
        self.detachable.get() != Detachable::No && is_written && self.is_open()
    }

    /// Whether anything of it has been written, or is to be, and has not been flushed.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.is_unflushed.get()
    }

    /// Whether it has failed, and what came before that has been written.
    pub(crate) fn is_cut(&self) -> bool {
        let is_written =
            self.queued.get() == 0 && !self.is_unflushed.get() && self.compressing.get() == 0;
        self.state.get() == State::Failed && self.is_head_sent.get() && is_written
    }

    /// The next piece for hyper.
    pub(crate) fn next_chunk(&self) -> NextChunk {
        if self.in_hyper.get() < MAX_IN_HYPER {
            if let Some(bytes) = self.pop() {
                self.queued.set(self.queued.get() - bytes.len());
                self.in_hyper.set(self.in_hyper.get() + bytes.len());
                self.sent.set(self.sent.get() + bytes.len() as u64);
                self.is_unflushed.set(true);
                return NextChunk::Chunk(bytes);
            }
        }
        match self.state.get() {
            State::Ended if self.queued.get() == 0 => NextChunk::CloseState,
            _ => {
                self.request_chunk();
                NextChunk::Wait
            }
        }
    }

    /// Whether it is whole, and nothing of it waits here.
    pub(crate) fn is_fully_taken(&self) -> bool {
        self.state.get() == State::Ended && self.queued.get() == 0
    }

    /// Whether another piece is there already.
    pub(crate) fn has_queued(&self) -> bool {
        self.queued.get() > 0
    }

    /// What was taken last, `len` bytes, goes to a compressor and not to hyper, which had something unflushed before, or not.
    pub(crate) fn begin_compression(&self, len: usize, was_unflushed: bool) {
        self.compressing.set(len);
        self.is_unflushed.set(was_unflushed);
    }

    /// It has been compressed. What comes of it is hyper's now; if nothing does, it lies in the compressor, and no write will tell that it
    /// has left.
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

    /// hyper has written all that it had. Says whether the connection is to be polled again.
    pub(crate) fn on_flushed(&self) -> bool {
        self.is_unflushed.set(false);
        let compressing = self.compressing.get();
        let written = self.in_hyper.replace(compressing) - compressing;
        self.release_bytes(written);
        self.request_chunk();
        // What is being compressed wakes the connection by itself.
        compressing == 0 && (self.queued.get() > 0 || !self.is_open())
    }

    /// `len` bytes do not wait any more.
    fn release_bytes(&self, len: usize) {
        if self.charge.bytes() > 0 {
            let waiting = self.queued.get() + self.in_hyper.get();
            self.charge.set(if waiting <= UNCHARGED_BYTES { 0 } else { waiting });
        }
        if self.flow.on_written(len) && !self.is_end_reported.get() {
            self.dispatch.notify(Event::Writable { stream: self.id, listener: self.listener });
        }
    }

    fn drop_queue(&self) {
        self.queue.borrow_mut().clear();
        self.joined.replace(BytesMut::new());
        self.queued.set(0);
        self.charge.set(0);
    }

    /// It is over: nothing waits any more, and its application is told, once. What has been decided before counts more than
    /// `reason`.
    pub(crate) fn report_end(&self, reason: StreamEnd) {
        if self.is_end_reported.replace(true) {
            return;
        }
        self.drop_queue();
        self.flow.end();
        // Nobody is told of room any more.
        self.flow.on_written(self.in_hyper.take());
        let reason = self.end_reason.get().unwrap_or(reason);
        self.dispatch.notify(Event::StreamEnded {
            stream: self.id,
            listener: self.listener,
            reason,
        });
    }

    fn wake(&self) {
        self.connections.wake(self.connection_key.get());
    }
}
