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
use super::frame_tracker::{self, FrameTracker, SERVICE_RESTART};
use super::handshake::{Extensions, KEY, switching_protocols};
use crate::application::application::Upstream;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::rate::RateMeter;
use crate::connections::table::TableEntry;
use crate::net::transport::{PeerState, Transport};
use crate::net::unix_stream::UnixStream;
use crate::rejection::Rejection;

/// Reads in a row of each direction before the other connections have their turn.
const READS_PER_POLL: usize = 4;

/// What a client is told whose worker has ended without a word.
const UPSTREAM_ENDED: &str = "the worker has ended";

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
    upstream: RefCell<Option<UnixStream>>,
    waker: RefCell<Option<Waker>>,
    /// From the client to the worker, and back.
    to_upstream: RefCell<Direction>,
    to_client: RefCell<Direction>,
    frames: RefCell<FrameTracker>,
    /// A close frame that is to go in at a frame's end.
    close_frame: RefCell<Vec<u8>>,
    /// Whether it has gone in: what comes from the worker has no place behind it, however the end goes on.
    is_close_sent: Cell<bool>,
    state: Cell<TunnelState>,
    /// Whether what goes down waits for the client.
    is_write_blocked: Cell<bool>,
    /// Whether what goes up waits for the worker: the client is not read meanwhile.
    is_read_paused: Cell<bool>,
    /// The tick at which a client that is not read was found to send no more.
    half_closed_at: Cell<Option<u32>>,
    /// How fast the client is at reading it, and the tick at which it last read something or had nothing to read.
    read_rate: RateMeter,
    last_progress: Cell<u32>,
    /// What is kept of each direction beyond what every connection is charged.
    upstream_charge: Charge,
    client_charge: Charge,
}

/// How far the end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelState {
    Open,
    /// A close frame of ours goes in, or has: what the worker says from there on is not passed on.
    Closing,
    /// One side has ended, and the other is to.
    Ending,
    /// Dropped.
    Closed,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    /// What is yet to be written.
    buffered: Vec<u8>,
    written: usize,
    /// Whether nothing more comes.
    is_ended: bool,
    /// Whether that has been said to the other side.
    is_shut_down: bool,
}

impl Direction {
    fn has_unwritten(&self) -> bool {
        self.written < self.buffered.len()
    }

    /// Writes what is kept; empty, it holds no memory.
    fn poll_flush(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        while self.has_unwritten() {
            match write(&self.buffered[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => self.written += n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.buffered.capacity() > 0 {
            self.buffered = Vec::new();
            self.written = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes `bytes`, where nothing is kept, and keeps what is not taken.
    fn forward(
        &mut self,
        mut bytes: &[u8],
        mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<()> {
        while !self.has_unwritten() && !bytes.is_empty() {
            match write(bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => bytes = &bytes[n..],
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.buffered.extend_from_slice(bytes);
        Ok(())
    }
}

impl Tunnel {
    /// One that an exchange has accepted, to this end.
    pub(super) fn new(
        shared: &Rc<WebSocketContext>,
        exchange: &Exchange,
        upstream: Upstream,
    ) -> Rc<Tunnel> {
        let key = exchange.header(KEY.as_bytes());
        let mut down = Direction::default();
        if let Some(key) = key {
            down.buffered = switching_protocols(exchange, key, Extensions::ByUpstream);
        }
        let Upstream { socket, mut read } = upstream;
        let mut frames = FrameTracker::default();
        frames.track(&mut read);
        down.buffered.extend_from_slice(&read);
        Rc::new(Tunnel {
            id: exchange.id(),
            listener: exchange.listener(),
            is_substream: key.is_none(),
            shared: Rc::clone(shared),
            transport: RefCell::default(),
            upstream: RefCell::new(Some(socket)),
            waker: RefCell::default(),
            to_upstream: RefCell::default(),
            to_client: RefCell::new(down),
            frames: RefCell::new(frames),
            close_frame: RefCell::default(),
            is_close_sent: Cell::new(false),
            state: Cell::new(TunnelState::Open),
            is_write_blocked: Cell::new(false),
            is_read_paused: Cell::new(false),
            half_closed_at: Cell::new(None),
            read_rate: RateMeter::default(),
            last_progress: Cell::new(shared.connections.clock.now()),
            upstream_charge: Charge::new(&shared.connections.budget, Share::Messages),
            client_charge: Charge::new(&shared.connections.budget, Share::Queues),
        })
    }

    // ---- its task ----

    /// The client's end, and what came behind the handshake.
    pub(super) fn attach(&self, transport: Transport, read: &[u8]) {
        self.transport.replace(Some(transport));
        self.to_upstream.borrow_mut().buffered.extend_from_slice(read);
    }

    /// It is over, whoever still knows it: what the application is told.
    pub(super) fn finish(&self) -> Event {
        let is_clean = self.is_close_sent.get() || self.frames.borrow().has_close_frame();
        self.state.set(TunnelState::Closed);
        self.transport.take();
        self.upstream.take();
        let code = if is_clean { CloseCode::NORMAL.get() } else { 1006 };
        let (socket, listener) = (self.id, self.listener);
        Event::Closed { socket, listener, code, reason: Box::default(), is_clean }
    }

    // ---- what it is told ----

    /// Has a close frame go in at the next end of a frame. The client's answer goes to the worker, which hears in this way that it is over.
    pub(crate) fn close(&self, code: u16, reason: &[u8]) {
        if self.state.get() != TunnelState::Open || self.frames.borrow().has_close_frame() {
            return;
        }
        let code = CloseCode::new(code).unwrap_or(CloseCode::GOING_AWAY);
        encode_close(
            &mut self.close_frame.borrow_mut(),
            Some(code),
            &String::from_utf8_lossy(reason),
            None,
        );
        self.start_ending(TunnelState::Closing);
        self.queue_close_frame();
        Tunnel::wake(self);
    }

    /// Drops both sides.
    pub(crate) fn abort(&self) {
        self.state.set(TunnelState::Closed);
        Tunnel::wake(self);
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The time that the end may take begins.
    fn start_ending(&self, state: TunnelState) {
        if self.state.get() == TunnelState::Open {
            self.last_progress.set(self.shared.connections.clock.now());
            self.read_rate.start();
        }
        self.state.set(state);
    }

    /// Puts the close frame in, if it may go in here.
    fn queue_close_frame(&self) {
        if self.frames.borrow().is_at_frame_boundary() {
            self.to_client.borrow_mut().buffered.append(&mut self.close_frame.borrow_mut());
            self.is_close_sent.set(true);
        }
    }

    /// Whether a close frame waits for the end of the worker's.
    fn is_close_pending(&self) -> bool {
        !self.close_frame.borrow().is_empty()
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
        let (mut transport, mut upstream) =
            (self.transport.borrow_mut(), self.upstream.borrow_mut());
        let (Some(transport), Some(upstream)) = (&mut *transport, &mut *upstream) else {
            return Poll::Ready(());
        };
        let passed = if self.state.get() == TunnelState::Closed {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            self.forward_to_upstream(cx, transport, upstream).and_then(|has_more| {
                Ok(has_more | self.forward_to_client(cx, transport, upstream)?)
            })
        };
        let Ok(has_more) = passed else {
            transport.reset_on_close();
            return Poll::Ready(());
        };
        if self.to_upstream.borrow().is_shut_down && self.to_client.borrow().is_shut_down {
            return Poll::Ready(());
        }
        if self.state.get() == TunnelState::Closed {
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
    fn forward_to_upstream(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        upstream: &mut UnixStream,
    ) -> io::Result<bool> {
        let mut direction = self.to_upstream.borrow_mut();
        for _ in 0..READS_PER_POLL {
            if self.to_client.borrow().is_ended {
                // There is nobody whom it is for.
                direction.buffered = Vec::new();
                direction.written = 0;
            }
            match direction.poll_flush(|bytes| Pin::new(&mut *upstream).poll_write(cx, bytes)) {
                Poll::Ready(Ok(())) => self.charge(&self.upstream_charge, 0),
                Poll::Ready(Err(_)) => {
                    direction.buffered = Vec::new();
                    direction.written = 0;
                }
                Poll::Pending => {
                    // In a tunnel what is not read lies here.
                    let kept = direction.buffered.len() + transport.buffer_unread(cx);
                    self.charge(&self.upstream_charge, kept);
                    self.is_read_paused.set(true);
                    return if transport.peer_state() == PeerState::Closed {
                        Err(io::ErrorKind::ConnectionReset.into())
                    } else {
                        Ok(false)
                    };
                }
            }
            self.is_read_paused.set(false);
            self.half_closed_at.set(None);
            if direction.is_ended {
                if !std::mem::replace(&mut direction.is_shut_down, true) {
                    let _ = Pin::new(&mut *upstream).poll_shutdown(cx);
                }
                return Ok(false);
            }
            let mut scratch = self.shared.scratch.0.borrow_mut();
            let n = match transport.poll_read(cx, &mut scratch) {
                Poll::Pending => return Ok(false),
                Poll::Ready(read) => read?,
            };
            if n == 0 {
                direction.is_ended = true;
                self.start_ending(TunnelState::Ending);
            } else if !self.to_client.borrow().is_ended {
                self.shared.dispatch.has_forwarded.set(true);
                let passed = direction
                    .forward(&scratch[..n], |bytes| Pin::new(&mut *upstream).poll_write(cx, bytes));
                if passed.is_err() {
                    direction.buffered = Vec::new();
                    direction.written = 0;
                }
            }
        }
        Ok(true)
    }

    /// From the worker to the client; whether there may be more, after others have had their turn.
    ///
    /// # Errors
    /// The client has gone.
    fn forward_to_client(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        upstream: &mut UnixStream,
    ) -> io::Result<bool> {
        for _ in 0..READS_PER_POLL {
            if !self.flush_to_client(cx, transport)? {
                return Ok(false);
            }
            let mut direction = self.to_client.borrow_mut();
            if direction.is_ended {
                if !std::mem::replace(&mut direction.is_shut_down, true) {
                    transport.shut_down();
                }
                return Ok(false);
            }
            let mut scratch = self.shared.scratch.0.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            let n = match Pin::new(&mut *upstream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(())) => buffer.filled().len(),
                Poll::Ready(Err(_)) => 0,
            };
            if n == 0 {
                direction.is_ended = true;
                drop(direction);
                self.on_upstream_end();
            } else if !self.is_close_sent.get() {
                let n = self.track(&mut scratch[..n]);
                direction
                    .forward(&scratch[..n], |bytes| {
                        transport.poll_write_vectored(cx, &[IoSlice::new(bytes)])
                    })
                    .inspect(|()| {
                        self.count_written(n - (direction.buffered.len() - direction.written))
                    })?;
                drop(direction);
                if self.is_close_pending() {
                    self.queue_close_frame();
                }
            }
        }
        Ok(true)
    }

    /// How much of it is passed on: up to the next end of a frame, where a close frame waits for that.
    fn track(&self, bytes: &mut [u8]) -> usize {
        let mut frames = self.frames.borrow_mut();
        if self.is_close_pending() {
            return frames.track_to_boundary(bytes);
        }
        frames.track(bytes);
        bytes.len()
    }

    /// Writes what is kept for the client: whether all of it has left.
    fn flush_to_client(&self, cx: &mut Context<'_>, transport: &mut Transport) -> io::Result<bool> {
        let mut direction = self.to_client.borrow_mut();
        let before = direction.buffered.len() - direction.written;
        let mut flushed =
            direction.poll_flush(|bytes| transport.poll_write_vectored(cx, &[IoSlice::new(bytes)]));
        if flushed.is_ready() {
            if let Poll::Ready(Err(error)) = flushed {
                return Err(error);
            }
            flushed = transport.poll_flush(cx);
        }
        self.count_written(before - (direction.buffered.len() - direction.written));
        let is_write_blocked = flushed.is_pending();
        if is_write_blocked != self.is_write_blocked.replace(is_write_blocked)
            && self.state.get() == TunnelState::Open
        {
            self.read_rate.start();
            self.last_progress.set(self.shared.connections.clock.now());
        }
        self.charge(&self.client_charge, direction.buffered.len());
        match flushed {
            Poll::Ready(done) => done.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    fn count_written(&self, written: usize) {
        if written > 0 {
            self.read_rate.count(written);
        }
    }

    /// Nothing more comes from the worker.
    fn on_upstream_end(&self) {
        let is_silent =
            self.state.get() == TunnelState::Open && !self.frames.borrow().has_close_frame();
        if is_silent && self.frames.borrow().is_at_frame_boundary() {
            let mut down = self.to_client.borrow_mut();
            encode_close(&mut down.buffered, CloseCode::new(SERVICE_RESTART), UPSTREAM_ENDED, None);
        }
        self.start_ending(TunnelState::Ending);
    }

    /// Looks whether a client that is not read, since the worker takes no more, is given up: at once when its connection is over,
    /// and when it has sent all it had, after as long as a peer may stand still. Reading would find either.
    fn check_abandoned(&self, now: u32) -> bool {
        match self.transport.borrow().as_ref().map_or(PeerState::Closed, Transport::peer_state) {
            PeerState::Open => false,
            PeerState::Closed => true,
            PeerState::HalfClosed => {
                let since = self.half_closed_at.get().unwrap_or(now);
                self.half_closed_at.set(Some(since));
                now.wrapping_sub(since) > self.shared.connections.clock.ticks.stall
            }
        }
    }

    /// Charges what is kept of a direction. Where there is no room for it, it ends.
    fn charge(&self, charge: &Charge, kept: usize) {
        let (has, needs) = (charge.bytes(), if kept <= UNCHARGED_BYTES { 0 } else { kept });
        if needs > has {
            let share = if std::ptr::eq(charge, &raw const self.upstream_charge) {
                Share::Messages
            } else {
                Share::Queues
            };
            if !self.shared.connections.admit(share, has, needs - has) {
                return self.evict();
            }
        }
        if needs != has {
            charge.set(needs);
        }
    }

    fn evict(&self) {
        self.shared.report(self.id, Rejection::Overload);
        self.upstream_charge.set(0);
        self.client_charge.set(0);
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
        if self.is_read_paused.get() && self.check_abandoned(now) {
            return self.abort();
        }
        let is_open = match self.state.get() {
            TunnelState::Closed => return,
            TunnelState::Open if !self.is_write_blocked.get() => return,
            end => end == TunnelState::Open,
        };
        let taken =
            self.read_rate.taken(self.transport.borrow().as_ref().and_then(Transport::unsent));
        if taken > 0 {
            self.last_progress.set(now);
        }
        let timeout = if is_open { ticks.stall } else { ticks.close };
        if self.read_rate.tick(ticks.message_rate, taken)
            || now.wrapping_sub(self.last_progress.get()) > timeout
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
            _ if self.state.get() == TunnelState::Closed => 0,
            Share::Messages => self.upstream_charge.bytes(),
            Share::Queues => self.client_charge.bytes(),
            _ => 0,
        }
    }

    fn evict_for_memory(&self, _share: Share, _held: usize) {
        self.evict();
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
        self.state.get() != TunnelState::Open
    }

    fn wake(&self) {
        Tunnel::wake(self);
    }
}

/// The ends of frames, as the fuzzer asks for them: where frames end, what is passed on, and whether the worker has begun to close.
pub fn track_frames_for_fuzzer(bytes: &[u8], cut: usize) -> (Vec<usize>, Vec<u8>, bool) {
    frame_tracker::track_frames_for_fuzzer(bytes, cut)
}
