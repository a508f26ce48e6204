//! A WebSocket as the rest of the I/O thread sees it: what waits for its peer, and its deadlines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use rookery_exchange::{
    Charge, Exchange, ListenerId, MessageKind, Payload, SendBacklog, Share, WebSocketId,
};
use rookery_websocket::endpoint::{Due, Endpoint, IoAction};
use rookery_websocket::protocol::{CloseCode, OpCode, Role};

use super::adapter::{ServerAdapter, Tick};
use super::compression::{Compression, negotiate};
use super::context::WebSocketContext;
use super::handshake::{Extensions, KEY, switching_protocols};
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::rate::RateMeter;
use crate::connections::table::TableEntry;
use crate::net::transport::{PeerState, Transport};
use crate::rejection::Rejection;

/// The close code that stands for none (RFC 6455, 7.4.1).
const NO_STATUS: u16 = 1005;

/// What a client is told whose server ends and another takes its place (IANA's registry).
const SERVICE_RESTART: u16 = 1012;

/// A peer is behind while more than this part of [`Limits::socket_queue`](crate::Limits::socket_queue) waits behind the message
/// that is being sent.
const BEHIND_FRACTION: usize = 4;

/// How many bytes are still read from a peer that is behind: enough for many clicks, and too few
/// for a flood.
const MAX_READ_WHILE_BEHIND: usize = 256 << 10;

/// A WebSocket as the rest of the I/O thread sees it.
#[derive(Debug)]
pub(crate) struct WebSocketHandle {
    pub(crate) id: WebSocketId,
    pub(crate) listener: ListenerId,
    /// Whether it is within a connection that others share, which answers its handshake.
    is_substream: bool,
    /// Whether a supervisor is between it and its client. It alone sees what the client takes, and gives one up that takes nothing.
    is_supervised: bool,
    pub(super) shared: Rc<WebSocketContext>,
    /// The core: what waits to be sent, and how far the end is.
    pub(super) endpoint: RefCell<Endpoint<ServerAdapter>>,
    /// The socket, as long as the task has it.
    pub(super) transport: RefCell<Option<Transport>>,
    pub(super) waker: RefCell<Option<Waker>>,
    /// With a client that takes part.
    pub(super) compression: Option<Box<Compression>>,
    /// Bytes of messages that are being compressed elsewhere, or wait for that.
    pub(super) deferred_bytes: Cell<usize>,
    /// The tick at which an open one's peer last read something, or had nothing to read.
    pub(super) last_progress: Cell<u32>,
    /// What waits, as the application sees it.
    pub(super) backlog: Arc<SendBacklog>,
    pub(super) is_write_blocked: Cell<bool>,
    /// Whether nothing is read because the application has no room, or the peer does not read what it is sent.
    pub(super) is_read_paused: Cell<bool>,
    /// Whether the peer is behind with reading, and the bytes that have been read of it since.
    is_behind: Cell<bool>,
    read_while_behind: Cell<usize>,
    /// The tick at which a peer that is not read was found to send no more, or since then the last one with progress.
    pub(super) half_closed_at: Cell<Option<u32>>,
    /// Whether the peer is inside a message of its, and the server waits for the rest.
    pub(super) is_mid_message: Cell<bool>,
    /// How fast the peer is at reading what waits for it, and at sending the rest of a message.
    pub(super) read_rate: RateMeter,
    pub(super) send_rate: RateMeter,
    /// What it is charged for: what waits to be sent, and what has been put together of a message.
    pub(super) queue_charge: Charge,
    pub(super) message_charge: Charge,
    /// Whether the message was given up for want of room, and the bytes of it that have not gone yet.
    pub(super) is_evicted: Cell<bool>,
    pub(super) pending_release: Cell<usize>,
}

/// How far the end is, as the core has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebSocketState {
    Open,
    /// A close frame is on its way to the peer.
    Closing,
    /// It is over, in order or not.
    Closed,
}

pub(super) fn opcode_of(kind: MessageKind) -> OpCode {
    match kind {
        MessageKind::Text => OpCode::Text,
        MessageKind::Binary => OpCode::Binary,
    }
}

impl WebSocketHandle {
    pub(super) fn new(shared: &Rc<WebSocketContext>, exchange: &Exchange) -> Rc<WebSocketHandle> {
        let now = shared.now();
        let compression = negotiate(shared, exchange);
        let mut endpoint =
            Endpoint::new(Role::Server, compression.as_ref().and_then(|with| with.deflater()));
        let agreed = compression.as_ref().map(|with| with.agreed);
        let key = exchange.header(KEY.as_bytes());
        if let Some(key) = key {
            endpoint.send_raw(&switching_protocols(exchange, key, Extensions::Negotiated(agreed)));
        }
        // The first ping is counted from here.
        endpoint.deadline(&shared.rules, || now);
        let handle = WebSocketHandle {
            id: exchange.id(),
            listener: exchange.listener(),
            is_substream: key.is_none(),
            is_supervised: exchange.ticket() != 0,
            shared: Rc::clone(shared),
            endpoint: RefCell::new(endpoint),
            transport: RefCell::default(),
            waker: RefCell::default(),
            compression,
            deferred_bytes: Cell::new(0),
            last_progress: Cell::new(now.0),
            backlog: exchange.backlog().map(Arc::clone).unwrap_or_default(),
            is_write_blocked: Cell::new(false),
            is_read_paused: Cell::new(false),
            is_behind: Cell::new(false),
            read_while_behind: Cell::new(0),
            half_closed_at: Cell::new(None),
            is_mid_message: Cell::new(false),
            read_rate: RateMeter::default(),
            send_rate: RateMeter::default(),
            queue_charge: Charge::new(&shared.connections.budget, Share::Queues),
            message_charge: Charge::new(&shared.connections.budget, Share::Messages),
            is_evicted: Cell::new(false),
            pending_release: Cell::new(0),
        };
        Rc::new(handle)
    }

    pub(super) fn state(&self) -> WebSocketState {
        let endpoint = self.endpoint.borrow();
        match endpoint.io_action() {
            IoAction::Over | IoAction::Reset => WebSocketState::Closed,
            _ if endpoint.may_send() => WebSocketState::Open,
            _ => WebSocketState::Closing,
        }
    }

    /// What its handshake agreed on.
    pub(super) fn extensions(&self) -> Extensions {
        Extensions::Negotiated(self.compression.as_ref().map(|with| with.agreed))
    }

    /// Sends a message.
    pub(crate) fn send(self: &Rc<Self>, kind: MessageKind, payload: Payload) {
        let len = payload.as_bytes().len();
        if self.compression.is_some() {
            self.queue_compressed(kind, payload);
        } else {
            let sent = self.endpoint.borrow_mut().send_owned(opcode_of(kind), payload);
            if let Ok(Some(Payload::Pooled(buffer))) = sent {
                self.shared.dispatch.application.recycle_buffer(buffer);
            }
        }
        let pending = self.check_send_queue();
        self.backlog.on_arrived(len, pending);
        self.wake();
    }

    /// Bytes that wait and are charged to the queue.
    pub(super) fn pending(&self) -> usize {
        self.endpoint.borrow().pending() + self.queued_behind()
    }

    /// Looks whether what was queued is too much: how much waits, wherever.
    pub(super) fn check_send_queue(&self) -> usize {
        let endpoint = self.endpoint.borrow();
        let waiting = endpoint.pending() + self.deferred_bytes.get();
        // The sum is looked at first: it is at hand.
        let is_full = waiting > self.shared.connections.limits.socket_queue
            && endpoint.bytes_after_current() + self.queued_behind()
                > self.shared.connections.limits.socket_queue
            && endpoint.may_send();
        let is_larger = waiting > self.queue_charge.bytes().max(UNCHARGED_BYTES);
        drop(endpoint);
        if is_full {
            self.close_for_overload(Rejection::Unread, "not read in time");
        } else if is_larger {
            self.charge_queue();
        }
        waiting
    }

    /// Whether the peer has to read before it is read again. An application that answers what it is sent would queue all of it
    /// otherwise. A little is read all the same, so that a slow reader can say something, or close; so is the rest of a
    /// message that has begun.
    pub(super) fn update_throttled(&self) -> bool {
        self.update_behind() && self.read_while_behind.get() > MAX_READ_WHILE_BEHIND
    }

    /// Whether the peer has read enough by now to be read again.
    pub(super) fn update_released(&self) -> bool {
        self.is_behind.get() && !self.update_behind()
    }

    /// Determines whether the peer is behind: it is from when a part of the largest queue is full
    /// until half of that part is left.
    fn update_behind(&self) -> bool {
        let mark = self.shared.connections.limits.socket_queue / BEHIND_FRACTION;
        let mark = if self.is_behind.get() { mark / 2 } else { mark };
        let endpoint = self.endpoint.borrow();
        // The sum is looked at first: it is at hand.
        let is_behind = endpoint.pending() + self.deferred_bytes.get() > mark
            && endpoint.may_send()
            && endpoint.bytes_after_current() + self.queued_behind() > mark;
        if !is_behind {
            self.read_while_behind.set(0);
        }
        self.is_behind.set(is_behind);
        is_behind
    }

    /// Nothing is read: reading would find that the peer has gone, and so does this. A WebSocket whose connection is over ends at
    /// once. One whose peer sends no more has what came before delivered, and is
    /// dropped once nothing has been read or written for as long as a peer may stand still.
    pub(super) fn on_read_paused(&self, now: u32) {
        match self.transport.borrow().as_ref().map_or(PeerState::Closed, Transport::peer_state) {
            PeerState::Open => self.half_closed_at.set(None),
            PeerState::Closed => self.abort(),
            PeerState::HalfClosed => {
                let since = self.half_closed_at.get().unwrap_or(now);
                self.half_closed_at.set(Some(since));
                if now.wrapping_sub(since) > self.shared.connections.clock.ticks.stall {
                    self.abort();
                }
            }
        }
    }

    /// Sends a ping, unless what was sent before is not being read: then its answer would say nothing.
    pub(crate) fn ping(&self) {
        let mut endpoint = self.endpoint.borrow_mut();
        if endpoint.pending() < self.shared.rules.high_water
            && endpoint.ping(self.shared.now()).is_ok()
        {
            drop(endpoint);
            self.wake();
        }
    }

    /// Starts the closing handshake. A code that must not be sent becomes 1001, as with httpuv.
    pub(crate) fn close(&self, code: u16, reason: &[u8]) {
        if self.is_compressing() {
            return self.defer_close(code, reason);
        }
        let code =
            (code != NO_STATUS).then(|| CloseCode::new(code).unwrap_or(CloseCode::GOING_AWAY));
        self.queue_close_frame(code, &String::from_utf8_lossy(reason));
        self.wake();
    }

    /// Queues the one close frame.
    pub(super) fn queue_close_frame(&self, code: Option<CloseCode>, reason: &str) {
        let mut endpoint = self.endpoint.borrow_mut();
        if endpoint.close(code, reason, &self.shared.rules, || self.shared.now()) {
            self.read_rate.start();
        }
    }

    /// It is over, and holds nothing any more, whoever still knows it.
    pub(super) fn end(&self) {
        self.endpoint.borrow_mut().abort();
        self.backlog.end();
        self.drop_deferred();
        self.transport.take();
        self.queue_charge.set(0);
        self.on_message_dropped();
    }

    /// Drops the connection.
    pub(crate) fn abort(&self) {
        self.endpoint.borrow_mut().abort();
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Notes that the peer has read: what it has time for begins anew.
    pub(super) fn on_write_progress(&self, now: Tick) {
        self.last_progress.set(now.0);
        self.endpoint.borrow_mut().on_progress(&self.shared.rules, now);
    }

    /// Notes that bytes came, after which the peer is inside a message or not.
    pub(super) fn on_read(&self, n: usize, is_mid_message: bool) {
        if is_mid_message && !self.is_mid_message.replace(true) {
            self.send_rate.start();
        } else if !is_mid_message {
            self.is_mid_message.set(false);
        }
        self.send_rate.count(n);
        if self.is_behind.get() {
            self.read_while_behind.set(self.read_while_behind.get().saturating_add(n));
        }
    }
}

impl TableEntry for WebSocketHandle {
    fn listener(&self) -> ListenerId {
        self.listener
    }

    fn serial(&self) -> u64 {
        self.id
    }

    /// Looks at the deadlines and sends the ping that is due; called each tick.
    fn sweep(&self, now: u32) {
        let ticks = &self.shared.connections.clock.ticks;
        let state = self.state();
        let is_open = state == WebSocketState::Open;
        if is_open && self.is_supervised && self.is_write_blocked.get() {
            // It waits for the supervisor, which takes in lumps what a client takes slowly.
            self.on_write_progress(Tick(now));
        } else if state == WebSocketState::Closing || (is_open && self.is_write_blocked.get()) {
            let taken =
                self.read_rate.taken(self.transport.borrow().as_ref().and_then(Transport::unsent));
            if taken > 0 {
                self.half_closed_at.set(None);
                self.on_write_progress(Tick(now));
            }
            let is_slow = self.read_rate.tick(ticks.message_rate, taken);
            let stands = is_open && now.wrapping_sub(self.last_progress.get()) > ticks.stall;
            if is_slow || stands {
                if is_open {
                    self.shared.report(self.id, Rejection::Unread);
                }
                return self.abort();
            }
        }
        if is_open
            && self.is_mid_message.get()
            && self.send_rate.tick(ticks.message_rate, self.send_rate.take())
        {
            self.is_mid_message.set(false);
            self.shared.report(self.id, Rejection::MessageTimeout);
            self.queue_close_frame(Some(CloseCode::POLICY), "message too slow");
            self.wake();
        }
        if self.is_read_paused.get() {
            self.on_read_paused(now);
        }
        let mut endpoint = self.endpoint.borrow_mut();
        if self.is_read_paused.get() {
            // What has come lies unread: that is no silence of the peer's.
            endpoint.on_input(0);
        }
        let due = endpoint.tick(&self.shared.rules, Tick(now));
        drop(endpoint);
        match due {
            Due::Nothing => {}
            Due::Silence => {
                self.shared.report(self.id, Rejection::Silent);
                self.abort();
            }
            Due::Ping | Due::Close => self.wake(),
        }
    }

    /// It is always being served.
    fn slowness(&self, _now: u32) -> Option<u32> {
        None
    }

    fn held(&self, share: Share) -> usize {
        self.evictable_bytes(share)
    }

    fn evict_for_memory(&self, share: Share, _held: usize) {
        self.evict_for(share);
    }

    fn evict_for_slot(&self) {
        self.abort();
    }

    fn stop(&self) {
        self.close(CloseCode::GOING_AWAY.get(), b"");
    }

    fn abort(&self) {
        WebSocketHandle::abort(self);
    }

    fn is_awaiting_response(&self) -> bool {
        false
    }

    fn is_substream(&self) -> bool {
        self.is_substream
    }

    fn is_ending(&self) -> bool {
        self.state() != WebSocketState::Open
    }

    fn wake(&self) {
        WebSocketHandle::wake(self);
    }

    fn is_supervised(&self) -> bool {
        self.is_supervised
    }

    fn close_for_restart(&self) {
        self.close(SERVICE_RESTART, b"the worker ends");
    }

    fn is_websocket(&self) -> bool {
        true
    }
}
