//! A reply that comes in pieces: what waits of it, and how far it is.
//!
//! # Ground rules
//! - A piece counts as waiting until hyper has written it; hyper has [`IN_HYPER`] bytes of it at most. So the marks that the
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
const IN_HYPER: usize = 128 << 10;

/// Shorter pieces are put together while they wait: each alone costs some 100 bytes, and a chunk of its own.
const JOINED: usize = 16 << 10;

/// What keeps a connection alive on which there are no events: a comment, and the end of the event that it would be.
const COMMENT: &[u8] = b":\n\n";

/// Milliseconds after which clients come again to a server that stopped: at random between the two, so that they do not come all at
/// once.
const RETRY: std::ops::Range<u64> = 3000..8000;

/// How soon an application that had nothing to give is asked again.
const NOTHING_YET: Duration = Duration::from_millis(10);

/// A reply that comes in pieces. Its connection has it from when the application has answered.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    id: StreamId,
    listener: ListenerId,
    /// The key of its connection among the peers, once that has it.
    peer: Cell<usize>,
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
    since: Cell<u32>,
    is_between: Cell<bool>,
    /// Whether its head is to leave before there is a piece.
    sends_head_first: Cell<bool>,
    /// Whether hyper has its head.
    has_head: Cell<bool>,
    /// Whether it is sent in chunks, as it is; and whether its connection ends with it.
    chunks: Cell<Chunks>,
    /// Whether the application has been asked for a piece, or is not to be asked yet.
    is_asked: Cell<bool>,
    is_resting: Rc<Cell<bool>>,
    /// How it ends, when that has been decided.
    reason: Cell<Option<StreamEnd>>,
    /// What the client is told if nothing has been sent.
    page: RefCell<Vec<u8>>,
    /// Whether the application has been told of its end.
    is_told: Cell<bool>,
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
pub(crate) enum Chunks {
    No,
    Yes,
    /// And the connection ends with it.
    Last,
}

/// What hyper is told when it asks for more.
pub(crate) enum Next {
    Piece(Bytes),
    /// Not now: the connection is woken.
    Wait,
    End,
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
            peer: Cell::new(usize::MAX),
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
            since: Cell::new(connections.clock.now()),
            is_between: Cell::new(true),
            sends_head_first: Cell::new(given.rules.sends_head_first),
            has_head: Cell::new(false),
            chunks: Cell::new(Chunks::No),
            is_asked: Cell::new(false),
            is_resting: Rc::default(),
            reason: Cell::new(None),
            page: RefCell::default(),
            is_told: Cell::new(false),
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
    pub(crate) fn left(&self) -> Option<u64> {
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
    pub(crate) fn push(&self, payload: Payload, goes_on: bool) {
        self.flow.on_chunk_arrived();
        self.is_asked.set(goes_on);
        let len = payload.as_bytes().len();
        if self.state.get() != State::Open {
            self.forget(len);
            return self.dispatch.recycle_payload(payload);
        }
        if len == 0 {
            self.dispatch.recycle_payload(payload);
            return self.ask_again();
        }
        if self.rules.is_events {
            self.since.set(self.connections.clock.now());
            self.is_between.set(payload.as_bytes().ends_with(b"\n\n"));
        }
        match payload {
            Payload::Pooled(bytes) if len < JOINED => {
                self.join(&bytes);
                self.dispatch.application.recycle_buffer(bytes);
            }
            Payload::Pooled(bytes) => self.enqueue(Bytes::from(bytes)),
            Payload::Lent(lease) => self.enqueue(Bytes::from_owner(lease)),
        }
        self.queued.set(self.queued.get() + len);
        if self.hold() { self.wake() } else { self.fail(StreamEnd::Slow, Vec::new()) }
    }

    fn join(&self, bytes: &[u8]) {
        let mut joined = self.joined.borrow_mut();
        if joined.len() + bytes.len() > JOINED {
            self.queue.borrow_mut().push_back(joined.split().freeze());
        }
        joined.put_slice(bytes);
    }

    /// Adds bytes of the server's own.
    fn add(&self, bytes: &[u8]) {
        self.flow.add_server_bytes(bytes.len());
        self.queued.set(self.queued.get() + bytes.len());
        self.join(bytes);
        self.since.set(self.connections.clock.now());
    }

    /// Sends a comment, if its events have been silent for long.
    pub(crate) fn sweep(&self, now: u32) {
        let clock = &self.connections.clock;
        let silence =
            ticks(Duration::from_secs(self.rules.heartbeat.into()), clock.ticks.length).max(1);
        let is_due = self.rules.heartbeat > 0 && now.wrapping_sub(self.since.get()) >= silence;
        // What waits is no silence, but a client that does not read.
        let is_idle =
            self.has_head.get() && self.is_open() && self.queued.get() + self.in_hyper.get() == 0;
        if is_due && is_idle && self.is_between.get() {
            self.add(COMMENT);
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
    fn hold(&self) -> bool {
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
        self.sends_head_first.set(true);
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
    pub(crate) fn fail(&self, reason: StreamEnd, page: Vec<u8>) {
        if self.state.get() != State::Open {
            return;
        }
        self.state.set(State::Failed);
        // A stop that finds bytes of the length missing is a stop.
        self.decide(reason);
        self.page.replace(page);
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
            self.reason.set(Some(StreamEnd::Stop));
            if self.rules.is_events && self.is_between.get() {
                // Of the ids of streams one is as likely as the next.
                let spread = self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
                let retry = RETRY.start + spread % (RETRY.end - RETRY.start);
                self.add(format!("retry: {retry}\n\n").as_bytes());
            }
            self.end();
        }
    }

    /// Decides how it ends, unless that has been.
    pub(crate) fn decide(&self, reason: StreamEnd) {
        if self.reason.get().is_none() {
            self.reason.set(Some(reason));
        }
    }

    /// How it ends, if that has been decided.
    pub(crate) fn decided(&self) -> Option<StreamEnd> {
        self.reason.get()
    }

    // ---- asking ----

    /// Asks the application for a piece, if it is to be asked and there is room.
    pub(crate) fn ask(&self) {
        let has_room = self.flow.has_capacity() && self.left() != Some(0);
        let is_due = self.rules.is_pulled && self.is_open() && has_room && !self.is_resting.get();
        if is_due && !self.is_asked.replace(true) {
            self.dispatch.notify(Event::Pull { stream: self.id, listener: self.listener });
        }
    }

    /// The application gives nothing more by itself.
    pub(crate) fn is_to_be_asked(&self) {
        self.is_asked.set(false);
        self.wake();
    }

    /// The application had nothing to give.
    fn ask_again(&self) {
        if self.rules.is_pulled && !self.is_resting.replace(true) {
            // The stream may be over by then, and another peer have the key: waking one for nothing is harmless.
            let (connections, peer, is_resting) =
                (Rc::clone(&self.connections), self.peer.get(), Rc::clone(&self.is_resting));
            tokio::task::spawn_local(async move {
                tokio::time::sleep(NOTHING_YET).await;
                is_resting.set(false);
                connections.wake(peer);
            });
        }
    }

    // ---- what its connection does ----

    /// Its connection has it.
    pub(crate) fn join_peer(&self, key: usize) {
        self.peer.set(key);
    }

    /// Whether its head can leave: with a piece, or alone.
    pub(crate) fn has_begun(&self) -> bool {
        self.sends_head_first.get()
            || self.queued.get() > 0
            || !self.is_open()
            || self.length() == Some(0)
    }

    /// What is said instead of the reply, when it has failed before anything was sent: the status, if the application has one for that, and
    /// the text.
    pub(crate) fn failure(&self) -> Option<(Option<u16>, Vec<u8>)> {
        let status = Some(self.rules.failed_status).filter(|status| *status > 0);
        (self.state.get() == State::Failed).then(|| (status, self.page.take()))
    }

    /// hyper has its head.
    pub(crate) fn has_head(&self) {
        self.has_head.set(true);
        self.is_unflushed.set(true);
        if self.rules.is_events
            && self.sent.get() + self.queued.get() as u64 == 0
            && self.length().is_none()
        {
            // A proxy passes a head on with the first byte behind it.
            self.add(COMMENT);
        }
    }

    /// How it is sent.
    pub(crate) fn set_chunks(&self, chunks: Chunks) {
        self.chunks.set(chunks);
    }

    /// Whether the connection ends with it.
    pub(crate) fn is_last(&self) -> bool {
        self.chunks.get() == Chunks::Last
    }

    /// Whether hyper is not needed any more: it has written all that there is, and may have to wait for long.
    pub(crate) fn leaves_hyper(&self) -> bool {
        let is_written = self.has_head.get() && !self.is_unflushed.get() && self.queued.get() == 0;
        self.chunks.get() != Chunks::No && is_written && self.is_open()
    }

    /// Whether anything of it has been written, or is to be, and has not been flushed.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.is_unflushed.get()
    }

    /// Whether it has failed, and what came before that has been written.
    pub(crate) fn is_cut(&self) -> bool {
        let is_written =
            self.queued.get() == 0 && !self.is_unflushed.get() && self.compressing.get() == 0;
        self.state.get() == State::Failed && self.has_head.get() && is_written
    }

    /// The next piece for hyper.
    pub(crate) fn next(&self) -> Next {
        if self.in_hyper.get() < IN_HYPER {
            if let Some(bytes) = self.pop() {
                self.queued.set(self.queued.get() - bytes.len());
                self.in_hyper.set(self.in_hyper.get() + bytes.len());
                self.sent.set(self.sent.get() + bytes.len() as u64);
                self.is_unflushed.set(true);
                return Next::Piece(bytes);
            }
        }
        match self.state.get() {
            State::Ended if self.queued.get() == 0 => Next::End,
            _ => {
                self.ask();
                Next::Wait
            }
        }
    }

    /// Whether it is whole, and nothing of it waits here.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.state.get() == State::Ended && self.queued.get() == 0
    }

    /// Whether another piece is there already.
    pub(crate) fn has_next(&self) -> bool {
        self.queued.get() > 0
    }

    /// What was taken last, `len` bytes, goes to a compressor and not to hyper, which had something unflushed before, or not.
    pub(crate) fn compresses(&self, len: usize, was_unflushed: bool) {
        self.compressing.set(len);
        self.is_unflushed.set(was_unflushed);
    }

    /// It has been compressed. What comes of it is hyper's now; if nothing does, it lies in the compressor, and no write will tell that it
    /// has left.
    pub(crate) fn has_compressed(&self, gives: bool) {
        let len = self.compressing.take();
        if gives {
            self.is_unflushed.set(true);
        } else {
            self.in_hyper.set(self.in_hyper.get().saturating_sub(len));
            self.forget(len);
        }
    }

    fn pop(&self) -> Option<Bytes> {
        let mut queue = self.queue.borrow_mut();
        let Some(first) = queue.front_mut() else {
            let joined = self.joined.borrow_mut().split().freeze();
            return Some(joined).filter(|joined| !joined.is_empty());
        };
        if first.len() > IN_HYPER { Some(first.split_to(IN_HYPER)) } else { queue.pop_front() }
    }

    /// hyper has written all that it had. Says whether the connection is to be polled again.
    pub(crate) fn has_flushed(&self) -> bool {
        self.is_unflushed.set(false);
        let compressing = self.compressing.get();
        let written = self.in_hyper.replace(compressing) - compressing;
        self.forget(written);
        self.ask();
        // What is being compressed wakes the connection by itself.
        compressing == 0 && (self.queued.get() > 0 || !self.is_open())
    }

    /// `len` bytes do not wait any more.
    fn forget(&self, len: usize) {
        if self.charge.bytes() > 0 {
            let waiting = self.queued.get() + self.in_hyper.get();
            self.charge.set(if waiting <= UNCHARGED_BYTES { 0 } else { waiting });
        }
        if self.flow.on_written(len) && !self.is_told.get() {
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
    pub(crate) fn depart(&self, reason: StreamEnd) {
        if self.is_told.replace(true) {
            return;
        }
        self.drop_queue();
        self.flow.end();
        // Nobody is told of room any more.
        self.flow.on_written(self.in_hyper.take());
        let reason = self.reason.get().unwrap_or(reason);
        self.dispatch.notify(Event::StreamEnded {
            stream: self.id,
            listener: self.listener,
            reason,
        });
    }

    fn wake(&self) {
        self.connections.wake(self.peer.get());
    }
}
