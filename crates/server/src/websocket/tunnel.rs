//! A tunnel, which forwards the bytes of a WebSocket between a client and an upstream process, such
//! as a worker.
//!
//! The upstream process implements the WebSocket protocol, including pings, compression, message
//! limits and the closing handshake. The tunnel does only what that process cannot do:
//! - It disconnects a client that does not read.
//! - It sends the client a close frame when the process or the server ends.
//!
//! While one side accepts no more bytes, the tunnel reads nothing from the other side. Bytes that
//! it has already read wait in a buffer, which is at most as large as the I/O thread's [scratch
//! buffer](crate::net::transport::Scratch). An idle tunnel holds no buffer.

mod direction;

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rookery_exchange::{Charge, Event, Exchange, ListenerId, Share, WebSocketId};
use rookery_websocket::protocol::{CloseCode, encode_close};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use self::direction::Direction;
use super::context::WebSocketContext;
use super::frame_tracker::{self, FrameTracker, SERVICE_RESTART};
use super::handshake::{Extensions, KEY, switching_protocols};
use crate::application::application::Upstream;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::rate::RateMeter;
use crate::connections::table::TableEntry;
use crate::net::local::LocalStream;
use crate::net::transport::{PeerState, Transport};
use crate::rejection::Rejection;

/// The maximum number of reads in each direction of a tunnel in one poll. Then other connections
/// are served.
const READS_PER_POLL: usize = 4;

/// The reason text in the close frame that a client gets when its upstream process has ended
/// without a close frame.
const UPSTREAM_ENDED: &str = "the worker has ended";

/// A tunnel between a client's WebSocket and an upstream process, which forwards bytes in both
/// directions.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) id: WebSocketId,
    listener: ListenerId,
    /// True if the client's WebSocket is an HTTP/2 stream. The HTTP/2 connection then sends the
    /// handshake response.
    is_substream: bool,
    shared: Rc<WebSocketContext>,
    /// The client's connection, until the tunnel's task ends.
    transport: RefCell<Option<Transport>>,
    upstream: RefCell<Option<LocalStream>>,
    waker: RefCell<Option<Waker>>,
    /// The bytes on their way from the client to the upstream process.
    to_upstream: RefCell<Direction>,
    /// The bytes on their way from the upstream process to the client.
    to_client: RefCell<Direction>,
    frames: RefCell<FrameTracker>,
    /// The server's own close frame for the client, while it waits for a frame boundary in the
    /// forwarded bytes.
    close_frame: RefCell<Vec<u8>>,
    /// True once the server has sent its own close frame to the client. Further bytes from the
    /// upstream process are discarded.
    is_close_sent: Cell<bool>,
    state: Cell<TunnelState>,
    /// True while the client's connection accepts no more bytes.
    is_write_blocked: Cell<bool>,
    /// True while the upstream process accepts no more bytes. The tunnel reads nothing from the
    /// client meanwhile.
    is_read_paused: Cell<bool>,
    /// The clock tick at which the tunnel found that the client has half-closed the connection.
    /// Only set while the tunnel reads nothing from the client.
    half_closed_at: Cell<Option<u32>>,
    /// The rate at which the client reads from the tunnel.
    read_rate: RateMeter,
    /// The clock tick at which the client last read something or had nothing to read.
    last_progress: Cell<u32>,
    /// The charge to the memory budget for buffered bytes from the client to the upstream process.
    // A small buffer is part of the charge for every connection.
    upstream_charge: Charge,
    /// The charge to the memory budget for buffered bytes from the upstream process to the client.
    client_charge: Charge,
}

/// The state of a tunnel between a client's WebSocket and an upstream process.
///
/// ```text
///              close()                 one side ended
/// ────▶ Open ───────────▶ Closing ───────────────────────▶ Ending
///        │ │                 │                             ▲   │
///        │ └─────────────────┼─────────────────────────────┘   │ both sides shut down
///        │   one side ended  │                                 │
///        │ abort(), evicted, client does not read, timeout     ▼
///        └───────────────────┴──────────────────────────────▶ Closed
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelState {
    Open,
    /// The server's close frame is waiting for a frame boundary or has been sent. Later bytes from
    /// the upstream process are discarded.
    Closing,
    /// The client or the upstream process has ended its direction of the tunnel, and the other one
    /// is expected to end as well.
    Ending,
    /// The tunnel is closed, and the connections to the client and to the upstream process are
    /// dropped.
    Closed,
}

impl Tunnel {
    /// Creates the tunnel for a WebSocket handshake that the upstream process has accepted.
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

    // ---- called by the task ----

    /// Gives the tunnel its connection to the client, and forwards the bytes that the client sent
    /// after its handshake.
    pub(super) fn attach(&self, transport: Transport, read: &[u8]) {
        self.transport.replace(Some(transport));
        self.to_upstream.borrow_mut().buffered.extend_from_slice(read);
    }

    /// Drops the connections to the client and to the upstream process. Returns the event that
    /// notifies the application that the WebSocket has ended.
    pub(super) fn finish(&self) -> Event {
        let is_clean = self.is_close_sent.get() || self.frames.borrow().has_close_frame();
        self.state.set(TunnelState::Closed);
        self.transport.take();
        self.upstream.take();
        let code = if is_clean { CloseCode::NORMAL.get() } else { 1006 };
        let (socket, listener) = (self.id, self.listener);
        Event::Closed { socket, listener, code, reason: Box::default(), is_clean }
    }

    // ---- called by others ----

    /// Sends a close frame to the client at the next frame boundary. When the client responds with
    /// its close frame, that frame is forwarded to the upstream process, which thus learns that the
    /// WebSocket is closed.
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

    /// Drops the connections to the client and to the upstream process without a closing handshake.
    pub(crate) fn abort(&self) {
        self.state.set(TunnelState::Closed);
        Tunnel::wake(self);
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Changes the state of the tunnel to `state`, which is `Closing` or `Ending`. Starts the
    /// closing timeout if the tunnel was open.
    fn start_ending(&self, state: TunnelState) {
        if self.state.get() == TunnelState::Open {
            self.last_progress.set(self.shared.connections.clock.now());
            self.read_rate.start();
        }
        self.state.set(state);
    }

    /// Queues the server's close frame for the client, if the forwarded bytes end at a frame
    /// boundary.
    fn queue_close_frame(&self) {
        if self.frames.borrow().is_at_frame_boundary() {
            self.to_client.borrow_mut().buffered.append(&mut self.close_frame.borrow_mut());
            self.is_close_sent.set(true);
        }
    }

    /// Returns true if the server's close frame is waiting for a frame boundary.
    fn is_close_pending(&self) -> bool {
        !self.close_frame.borrow().is_empty()
    }

    // ---- the two directions ----

    /// Forwards bytes between client and upstream process until the tunnel is closed.
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
            // The tunnel was closed for lack of memory.
            transport.reset_on_close();
            return Poll::Ready(());
        }
        if has_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Forwards bytes from the client to the upstream process. Returns true if it stopped early, so
    /// that other connections are served before further bytes are forwarded.
    ///
    /// # Errors
    /// Fails if the client has disconnected.
    fn forward_to_upstream(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        upstream: &mut LocalStream,
    ) -> io::Result<bool> {
        let mut direction = self.to_upstream.borrow_mut();
        for _ in 0..READS_PER_POLL {
            if self.to_client.borrow().is_ended {
                // The upstream process has ended, so the client's bytes are discarded.
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
                    // Only HTTP/2 streams buffer unread input in this process.
                    let buffered = direction.buffered.len() + transport.buffer_unread(cx);
                    self.charge(&self.upstream_charge, buffered);
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

    /// Forwards bytes from the upstream process to the client. Returns true if it stopped early, so
    /// that other connections are served before further bytes are forwarded.
    ///
    /// # Errors
    /// Fails if the client has disconnected.
    fn forward_to_client(
        &self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        upstream: &mut LocalStream,
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
                        self.count_written(n - (direction.buffered.len() - direction.written));
                    })?;
                drop(direction);
                if self.is_close_pending() {
                    self.queue_close_frame();
                }
            }
        }
        Ok(true)
    }

    /// Tracks the WebSocket frames in `bytes`, which the upstream process has sent. Returns the
    /// number of bytes to forward: all bytes, or those up to the next frame boundary if the
    /// server's close frame waits for one.
    fn track(&self, bytes: &mut [u8]) -> usize {
        let mut frames = self.frames.borrow_mut();
        if self.is_close_pending() {
            return frames.track_to_boundary(bytes);
        }
        frames.track(bytes);
        bytes.len()
    }

    /// Writes the bytes that are buffered for the client. Returns true if all of them were written.
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

    /// Queues a close frame for the client after the upstream process has ended, if the process
    /// sent no close frame and the forwarded bytes end at a frame boundary.
    fn on_upstream_end(&self) {
        let is_silent =
            self.state.get() == TunnelState::Open && !self.frames.borrow().has_close_frame();
        if is_silent && self.frames.borrow().is_at_frame_boundary() {
            let mut down = self.to_client.borrow_mut();
            encode_close(&mut down.buffered, CloseCode::new(SERVICE_RESTART), UPSTREAM_ENDED, None);
        }
        self.start_ending(TunnelState::Ending);
    }

    /// Returns true if the tunnel must be aborted because its client has disconnected while the
    /// tunnel reads nothing from it. If the client has only half-closed the connection, returns
    /// true only after the stall timeout.
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

    /// Charges the memory budget for the buffered bytes of one direction of the tunnel. If the
    /// budget is exhausted, aborts the tunnel.
    fn charge(&self, charge: &Charge, buffered: usize) {
        let (has, needs) = (charge.bytes(), if buffered <= UNCHARGED_BYTES { 0 } else { buffered });
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

    /// Aborts the tunnel if its client does not read, or if closing takes too long. Called at each
    /// clock tick. A client that has vanished is not detected here, but by the pings of the
    /// upstream process.
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

    /// Returns `None`, because a WebSocket is never closed in order to admit a new connection.
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

/// Lets the fuzzer track the WebSocket frames in `bytes`, which arrive in two parts that are split
/// at `cut`. Returns the positions of the frame boundaries, the forwarded bytes, and whether a
/// close frame has begun.
pub fn track_frames_for_fuzzer(bytes: &[u8], cut: usize) -> (Vec<usize>, Vec<u8>, bool) {
    frame_tracker::track_frames_for_fuzzer(bytes, cut)
}
