//! A WebSocket whose other end is a process of ours that speaks the protocol itself: after the handshake bytes are passed on as they are, in
//! both directions. Pings, compression and the closing handshake are between that process and the client, and so is what a message may be.
//! What is done here is what only this side can: to give up a client that does not read, and to say why the WebSocket ends when the process
//! does, at a frame's end.
//!
//! What one side does not take is kept, [`Scratch`](crate::net::transport::Scratch)'s size of it at the most for each direction, and the other
//! side is not read meanwhile. Idle, neither direction holds anything.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rookery_exchange::{Charge, Event, Exchange, ListenerId, Share, WebSocketId};
use rookery_websocket::protocol::{CloseCode, encode_close};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::context::WebSocketContext;
use super::frame_tracker::{self, FrameTracker, RESTARTS};
use super::handshake::{Extensions, KEY, switching_protocols};
use crate::application::application::Upstream;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::rate::RateMeter;
use crate::connections::table::TableEntry;
use crate::net::transport::{PeerState, Transport};
use crate::net::unix_stream::UnixStream;
use crate::rejection::Rejection;

/// Reads in a row of each direction before the other connections have their turn.
const READS: usize = 4;

/// What a client is told whose worker has ended without a word.
const HAS_ENDED: &str = "the worker has ended";

/// See the module.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) id: WebSocketId,
    listener: ListenerId,
    /// Whether it is within a connection that others share, which answers its handshake.
    is_substream: bool,
    shared: Rc<WebSocketContext>,
    /// The client's end, as long as the task has it.
    transport: RefCell<Option<Transport>>,
    far: RefCell<Option<UnixStream>>,
    waker: RefCell<Option<Waker>>,
    /// From the client to the worker, and back.
    up: RefCell<Direction>,
    down: RefCell<Direction>,
    ends: RefCell<FrameTracker>,
    /// A close frame that is to go in at a frame's end.
    goodbye: RefCell<Vec<u8>>,
    /// Whether it has gone in: what comes from the worker has no place behind it, however the end goes on.
    has_said_goodbye: Cell<bool>,
    end: Cell<End>,
    /// Whether what goes down waits for the client.
    is_blocked: Cell<bool>,
    /// Whether what goes up waits for the worker: the client is not read meanwhile.
    is_paused: Cell<bool>,
    /// The tick at which a client that is not read was found to send no more.
    shut_at: Cell<Option<u32>>,
    /// How fast the client is at reading it, and the tick at which it last read something or had nothing to read.
    reading: RateMeter,
    since: Cell<u32>,
    /// What is kept of each direction beyond what every connection is charged.
    kept_up: Charge,
    kept_down: Charge,
}

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// A close frame of ours goes in, or has: what the worker says from there on is not passed on.
    Closing,
    /// One side has ended, and the other is to.
    Ended,
    /// Dropped.
    Over,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    /// What is yet to be written.
    kept: Vec<u8>,
    at: usize,
    /// Whether nothing more comes.
    is_over: bool,
    /// Whether that has been said to the other side.
    is_shut: bool,
}

impl Direction {
    fn has_kept(&self) -> bool {
        self.at < self.kept.len()
    }

    /// Writes what is kept; empty, it holds no memory.
    fn poll_flush(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while self.has_kept() {
            match write(&self.kept[self.at..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => self.at += n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.kept.capacity() > 0 {
            self.kept = Vec::new();
            self.at = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes `bytes`, where nothing is kept, and keeps what is not taken.
    fn pass_on(
        &mut self,
        mut bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<()> {
        while !self.has_kept() && !bytes.is_empty() {
            match write(bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => bytes = &bytes[n..],
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.kept.extend_from_slice(bytes);
        Ok(())
    }
}

impl Tunnel {
    /// One that an exchange has accepted, to this end.
    pub(super) fn new(
        shared: &Rc<WebSocketContext>,
        exchange: &Exchange,
        far: Upstream,
    ) -> Rc<Tunnel> {
        let key = exchange.header(KEY.as_bytes());
        let mut down = Direction::default();
        if let Some(key) = key {
            down.kept = switching_protocols(exchange, key, Extensions::ByUpstream);
        }
        let Upstream { socket, mut read } = far;
        let mut ends = FrameTracker::default();
        ends.follow(&mut read);
        down.kept.extend_from_slice(&read);
        Rc::new(Tunnel {
            id: exchange.id(),
            listener: exchange.listener(),
            is_substream: key.is_none(),
            shared: Rc::clone(shared),
            transport: RefCell::default(),
            far: RefCell::new(Some(socket)),
            waker: RefCell::default(),
            up: RefCell::default(),
            down: RefCell::new(down),
            ends: RefCell::new(ends),
            goodbye: RefCell::default(),
            has_said_goodbye: Cell::new(false),
            end: Cell::new(End::Open),
            is_blocked: Cell::new(false),
            is_paused: Cell::new(false),
            shut_at: Cell::new(None),
            reading: RateMeter::default(),
            since: Cell::new(shared.connections.clock.now()),
            kept_up: Charge::new(&shared.connections.budget, Share::Messages),
            kept_down: Charge::new(&shared.connections.budget, Share::Queues),
        })
    }

    // ---- its task ----

    /// The client's end, and what came behind the handshake.
    pub(super) fn begin(&self, transport: Transport, read: &[u8]) {
        self.transport.replace(Some(transport));
        self.up.borrow_mut().kept.extend_from_slice(read);
    }

    /// It is over, whoever still knows it: what the application is told.
    pub(super) fn end(&self) -> Event {
        let is_clean = self.has_said_goodbye.get() || self.ends.borrow().is_closing();
        self.end.set(End::Over);
        self.transport.take();
        self.far.take();
        let code = if is_clean { CloseCode::NORMAL.get() } else { 1006 };
        let (socket, listener) = (self.id, self.listener);
        Event::Closed { socket, listener, code, reason: Box::default(), is_clean }
    }

    // ---- what it is told ----

    /// Has a close frame go in at the next end of a frame. The client's answer goes to the worker, which hears in this way that it is over.
    pub(crate) fn close(&self, code: u16, reason: &[u8]) {
        if self.end.get() != End::Open || self.ends.borrow().is_closing() {
            return;
        }
        let code = CloseCode::new(code).unwrap_or(CloseCode::GOING_AWAY);
        encode_close(
            &mut self.goodbye.borrow_mut(),
            Some(code),
            &String::from_utf8_lossy(reason),
            None,
        );
        self.ends_at(End::Closing);
        self.say_goodbye();
        Tunnel::wake(self);
    }

    /// Drops both sides.
    pub(crate) fn abort(&self) {
        self.end.set(End::Over);
        Tunnel::wake(self);
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The time that the end may take begins.
    fn ends_at(&self, end: End) {
        if self.end.get() == End::Open {
            self.since.set(self.shared.connections.clock.now());
            self.reading.start();
        }
        self.end.set(end);
    }

    /// Puts the close frame in, if it may go in here.
    fn say_goodbye(&self) {
        if self.ends.borrow().is_between() {
            self.down.borrow_mut().kept.append(&mut self.goodbye.borrow_mut());
            self.has_said_goodbye.set(true);
        }
    }

    /// Whether a close frame waits for the end of the worker's.
    fn is_to_say_goodbye(&self) -> bool {
        !self.goodbye.borrow().is_empty()
    }

    // ---- its two directions ----

    /// Passes on what there is, to the end.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut waker = self.waker.borrow_mut();
            if waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        let (mut transport, mut far) = (self.transport.borrow_mut(), self.far.borrow_mut());
        let (Some(transport), Some(far)) = (&mut *transport, &mut *far) else {
            return Poll::Ready(());
        };
        let passed = if self.end.get() == End::Over {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            self.pass_up(cx, transport, far)
                .and_then(|has_more| Ok(has_more | self.pass_down(cx, transport, far)?))
        };
        let Ok(has_more) = passed else {
            transport.reset_on_close();
            return Poll::Ready(());
        };
        if self.up.borrow().is_shut && self.down.borrow().is_shut {
            return Poll::Ready(());
        }
        if self.end.get() == End::Over {
            // For want of room.
            transport.reset_on_close();
            return Poll::Ready(());
        }
        if has_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// From the client to the worker; whether there may be more, after others have had their turn.
    ///
    /// # Errors
    /// The client has gone. The end of the worker is seen by what it says.
    fn pass_up(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        far: &mut UnixStream,
    ) -> io::Result<bool> {
        let mut way = self.up.borrow_mut();
        for _ in 0..READS {
            if self.down.borrow().is_over {
                // There is nobody whom it is for.
                way.kept = Vec::new();
                way.at = 0;
            }
            match way.poll_flush(|bytes| Pin::new(&mut *far).poll_write(cx, bytes)) {
                Poll::Ready(Ok(())) => self.hold(&self.kept_up, 0),
                Poll::Ready(Err(_)) => {
                    way.kept = Vec::new();
                    way.at = 0;
                }
                Poll::Pending => {
                    // In a tunnel what is not read lies here.
                    let kept = way.kept.len() + transport.buffer_unread(cx);
                    self.hold(&self.kept_up, kept);
                    self.is_paused.set(true);
                    return if transport.peer_state() == PeerState::Closed {
                        Err(io::ErrorKind::ConnectionReset.into())
                    } else {
                        Ok(false)
                    };
                }
            }
            self.is_paused.set(false);
            self.shut_at.set(None);
            if way.is_over {
                if !std::mem::replace(&mut way.is_shut, true) {
                    let _ = Pin::new(&mut *far).poll_shutdown(cx);
                }
                return Ok(false);
            }
            let mut scratch = self.shared.scratch.0.borrow_mut();
            let n = match transport.poll_read(cx, &mut scratch) {
                Poll::Pending => return Ok(false),
                Poll::Ready(read) => read?,
            };
            if n == 0 {
                way.is_over = true;
                self.ends_at(End::Ended);
            } else if !self.down.borrow().is_over {
                self.shared.dispatch.has_forwarded.set(true);
                let passed =
                    way.pass_on(&scratch[..n], |bytes| Pin::new(&mut *far).poll_write(cx, bytes));
                if passed.is_err() {
                    way.kept = Vec::new();
                    way.at = 0;
                }
            }
        }
        Ok(true)
    }

    /// From the worker to the client; whether there may be more, after others have had their turn.
    ///
    /// # Errors
    /// The client has gone.
    fn pass_down(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        far: &mut UnixStream,
    ) -> io::Result<bool> {
        for _ in 0..READS {
            if !self.flush_down(cx, transport)? {
                return Ok(false);
            }
            let mut way = self.down.borrow_mut();
            if way.is_over {
                if !std::mem::replace(&mut way.is_shut, true) {
                    transport.shut_down();
                }
                return Ok(false);
            }
            let mut scratch = self.shared.scratch.0.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            let n = match Pin::new(&mut *far).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(())) => buffer.filled().len(),
                Poll::Ready(Err(_)) => 0,
            };
            if n == 0 {
                way.is_over = true;
                drop(way);
                self.worker_has_ended();
            } else if !self.has_said_goodbye.get() {
                let n = self.follow(&mut scratch[..n]);
                way.pass_on(&scratch[..n], |bytes| {
                    transport.poll_write_vectored(cx, &[IoSlice::new(bytes)])
                })
                .inspect(|()| self.count_read(n - (way.kept.len() - way.at)))?;
                drop(way);
                if self.is_to_say_goodbye() {
                    self.say_goodbye();
                }
            }
        }
        Ok(true)
    }

    /// How much of it is passed on: up to the next end of a frame, where a close frame waits for that.
    fn follow(&self, bytes: &mut [u8]) -> usize {
        let mut ends = self.ends.borrow_mut();
        if self.is_to_say_goodbye() {
            return ends.follow_one(bytes);
        }
        ends.follow(bytes);
        bytes.len()
    }

    /// Writes what is kept for the client: whether all of it has left.
    fn flush_down(&self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let mut way = self.down.borrow_mut();
        let before = way.kept.len() - way.at;
        let mut flushed =
            way.poll_flush(|bytes| transport.poll_write_vectored(cx, &[IoSlice::new(bytes)]));
        if flushed.is_ready() {
            if let Poll::Ready(Err(error)) = flushed {
                return Err(error);
            }
            flushed = transport.poll_flush(cx);
        }
        self.count_read(before - (way.kept.len() - way.at));
        let is_blocked = flushed.is_pending();
        if is_blocked != self.is_blocked.replace(is_blocked) && self.end.get() == End::Open {
            self.reading.start();
            self.since.set(self.shared.connections.clock.now());
        }
        self.hold(&self.kept_down, way.kept.len());
        match flushed {
            Poll::Ready(done) => done.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    fn count_read(&self, written: usize) {
        if written > 0 {
            self.reading.count(written);
        }
    }

    /// Nothing more comes from the worker.
    fn worker_has_ended(&self) {
        let is_silent = self.end.get() == End::Open && !self.ends.borrow().is_closing();
        if is_silent && self.ends.borrow().is_between() {
            let mut down = self.down.borrow_mut();
            encode_close(&mut down.kept, CloseCode::new(RESTARTS), HAS_ENDED, None);
        }
        self.ends_at(End::Ended);
    }

    /// Looks whether a client that is not read, since the worker takes no more, is given up: at once when its connection is over,
    /// and when it has sent all it had, after as long as a peer may stand still. Reading would find either.
    fn is_given_up(&self, now: u32) -> bool {
        match self.transport.borrow().as_ref().map_or(PeerState::Closed, Transport::peer_state) {
            PeerState::Open => false,
            PeerState::Closed => true,
            PeerState::HalfClosed => {
                let since = self.shut_at.get().unwrap_or(now);
                self.shut_at.set(Some(since));
                now.wrapping_sub(since) > self.shared.connections.clock.ticks.stall
            }
        }
    }

    /// Charges what is kept of a direction. Where there is no room for it, it ends.
    fn hold(&self, charge: &Charge, kept: usize) {
        let (has, needs) = (charge.bytes(), if kept <= UNCHARGED_BYTES { 0 } else { kept });
        if needs > has {
            let share = if std::ptr::eq(charge, &raw const self.kept_up) {
                Share::Messages
            } else {
                Share::Queues
            };
            if !self.shared.connections.admit(share, has, needs - has) {
                return self.end_for_others();
            }
        }
        if needs != has {
            charge.set(needs);
        }
    }

    fn end_for_others(&self) {
        self.shared.report(self.id, Rejection::Overload);
        self.kept_up.set(0);
        self.kept_down.set(0);
        self.abort();
    }
}

impl TableEntry for Tunnel {
    fn listener(&self) -> ListenerId {
        self.listener
    }

    fn serial(&self) -> u64 {
        self.id
    }

    /// Looks whether the client takes what waits for it, and whether an end comes to its end; called each tick. Whether it is there at all the
    /// worker asks it, by pings.
    fn sweep(&self, now: u32) {
        let ticks = &self.shared.connections.clock.ticks;
        if self.is_paused.get() && self.is_given_up(now) {
            return self.abort();
        }
        let is_open = match self.end.get() {
            End::Over => return,
            End::Open if !self.is_blocked.get() => return,
            end => end == End::Open,
        };
        let taken =
            self.reading.taken(self.transport.borrow().as_ref().and_then(Transport::unsent));
        if taken > 0 {
            self.since.set(now);
        }
        let patience = if is_open { ticks.stall } else { ticks.close };
        if self.reading.tick(ticks.message_rate, taken)
            || now.wrapping_sub(self.since.get()) > patience
        {
            if is_open {
                self.shared.report(self.id, Rejection::Unread);
            }
            self.abort();
        }
    }

    /// It is always being served.
    fn slowness(&self, _now: u32) -> Option<u32> {
        None
    }

    fn held(&self, share: Share) -> usize {
        match share {
            _ if self.end.get() == End::Over => 0,
            Share::Messages => self.kept_up.bytes(),
            Share::Queues => self.kept_down.bytes(),
            _ => 0,
        }
    }

    fn evict_for_memory(&self, _share: Share, _held: usize) {
        self.end_for_others();
    }

    fn evict_for_slot(&self) {
        self.abort();
    }

    fn stop(&self) {
        self.close(CloseCode::GOING_AWAY.get(), b"");
    }

    fn abort(&self) {
        Tunnel::abort(self);
    }

    fn is_awaiting_response(&self) -> bool {
        false
    }

    fn is_substream(&self) -> bool {
        self.is_substream
    }

    fn is_ending(&self) -> bool {
        self.end.get() != End::Open
    }

    fn wake(&self) {
        Tunnel::wake(self);
    }
}

/// The ends of frames, as the fuzzer asks for them: where frames end, what is passed on, and whether the worker has begun to close.
pub fn follow_for_fuzzer(bytes: &[u8], cut: usize) -> (Vec<usize>, Vec<u8>, bool) {
    frame_tracker::follow_for_fuzzer(bytes, cut)
}
