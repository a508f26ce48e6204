//! The handle of a WebSocket. Other tasks use it to send messages, and the connection table uses it
//! to enforce deadlines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use rookery_exchange::{
    Charge, Exchange, ListenerId, MessageKind, Payload, Peer, SendBacklog, Share, WebSocketId,
};
use rookery_websocket::endpoint::{Due, Endpoint, IoAction};
use rookery_websocket::protocol::{CloseCode, OpCode, Role};

use super::compression::{Compression, negotiate};
use super::context::WebSocketContext;
use super::endpoint_config::{ServerAdapter, Tick};
use super::handshake::{Extensions, KEY, switching_protocols};
use super::shiny_messages::ObservedSession;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::eviction::cost::EvictionCost;
use crate::connections::rate::RateMeter;
use crate::connections::table::TableEntry;
use crate::logging::access_log::session_record::SessionRecord;
use crate::net::transport::{PeerState, Transport};
use crate::rejection::Rejection;

/// The WebSocket close code which stands for a close frame without a code (RFC 6455, 7.4.1).
const NO_STATUS: u16 = 1005;

/// The divisor of [`Limits::ws_max_send_queue_size`](crate::Limits::ws_max_send_queue_size) that
/// gives the length of a send queue above which the client counts as behind with reading. The
/// message that is being sent does not count.
const BEHIND_FRACTION: usize = 4;

/// The number of bytes that the server still reads from a client after the client has fallen behind
/// with reading. It suffices for many small messages, such as clicks, but not for a flood of
/// messages.
const MAX_READ_WHILE_BEHIND: usize = 256 << 10;

/// The handle of a WebSocket. Other tasks use it to send messages, and the connection table uses it
/// to enforce deadlines.
#[derive(Debug)]
pub(crate) struct WebSocketHandle {
    pub(crate) id: WebSocketId,
    pub(crate) listener: ListenerId,
    /// The peer to which the WebSocket is attributed.
    pub(super) peer: Peer,
    /// True if the WebSocket is an HTTP/2 stream. The HTTP/2 connection then sends the handshake
    /// response.
    is_substream: bool,
    pub(super) shared: Rc<WebSocketContext>,
    /// The protocol core of the WebSocket, with its send queue and the state of the closing
    /// handshake.
    pub(super) endpoint: RefCell<Endpoint<ServerAdapter>>,
    /// The transport of the WebSocket, until its task ends.
    pub(super) transport: RefCell<Option<Transport>>,
    pub(super) waker: RefCell<Option<Waker>>,
    /// The compression state, if permessage-deflate was negotiated.
    pub(super) compression: Option<Box<Compression>>,
    /// The number of bytes of outgoing messages that are being compressed on another thread, or
    /// that wait for this compression.
    pub(super) deferred_bytes: Cell<usize>,
    /// The clock tick at which the client of the WebSocket last read something or had nothing to
    /// read.
    pub(super) last_progress: Cell<u32>,
    /// The length and state of the send queue, which the application can query.
    pub(super) backlog: Arc<SendBacklog>,
    pub(super) is_write_blocked: Cell<bool>,
    /// True while the server reads nothing from the client, because the application has no capacity
    /// for messages or the client does not read the messages sent to it.
    pub(super) is_read_paused: Cell<bool>,
    /// True while the WebSocket waits in the [registry](super::registry::WebSocketRegistry) until
    /// the application has capacity for its messages.
    pub(super) waits_for_capacity: Cell<bool>,
    /// True if the WebSocket was woken because the application has capacity, and must wake the next
    /// one of its network when it has read.
    pub(super) wakes_next: Cell<bool>,
    /// True while the client is behind with reading its messages.
    is_behind: Cell<bool>,
    /// The number of bytes that the server has read from the client since the client fell behind.
    read_while_behind: Cell<usize>,
    /// The clock tick from which the stall timeout of a half-closed connection counts. Set only
    /// while the server reads nothing from the client.
    pub(super) half_closed_at: Cell<Option<u32>>,
    /// The number of queued bytes of pings. Pings that are written to a client that has half-closed
    /// its connection are no sign that the client still reads.
    unwritten_pings: Cell<usize>,
    /// True if the client has sent a part of a message, and the server waits for the rest of it.
    pub(super) is_mid_message: Cell<bool>,
    /// The rate at which the client reads queued messages.
    pub(super) read_rate: RateMeter,
    /// The rate at which the client sends the rest of an incomplete message.
    pub(super) send_rate: RateMeter,
    /// The charge to the memory budget for the WebSocket itself.
    pub(super) connection_charge: Charge,
    /// The charge to the memory budget for the send queue.
    pub(super) queue_charge: Charge,
    /// The charge to the memory budget for an incoming message that is not complete yet.
    pub(super) message_charge: Charge,
    /// The session of Shiny that the WebSocket is, if any.
    session: RefCell<ObservedSession>,
    /// The record of the WebSocket for the access log, if the log has records of WebSockets.
    pub(super) record: Option<Box<SessionRecord>>,
    /// True if an incomplete incoming message was evicted for lack of memory.
    pub(super) is_evicted: Cell<bool>,
    /// True if the WebSocket was evicted, and ends as soon as its task has written what the client
    /// accepts at once.
    pub(super) ends_after_write: Cell<bool>,
    /// The number of bytes of the evicted incoming message that have not been freed yet.
    pub(super) pending_release: Cell<usize>,
    /// The number of bytes of the evicted WebSocket itself that have not been freed yet.
    pub(super) own_pending_release: Cell<usize>,
}

/// The state of a WebSocket, derived from its endpoint (the protocol core).
///
/// ```text
///                       close(), stop of the listener, worker restart,
///  handshake            client's close frame, protocol error, overload,
///  accepted             message sent too slowly
/// ─────────────▶ Open ──────────────────────────────────────────────────▶ Closing
///                  │                                                         │
///                  │ abort(): connection lost, no pong in time,              │ closing handshake
///                  │ client does not read, evicted                           │ complete, timeout,
///                  │                                                         │ lost, abort()
///                  └───────────────────────────▶ Closed ◀────────────────────┘
/// ```
///
/// In Open, messages are sent and received. In Closing, the rest of the send queue and the close
/// frame are written. The application is notified
/// ([`Event::Closed`](rookery_exchange::Event::Closed)) once, when no more messages can be
/// received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebSocketState {
    Open,
    /// The WebSocket is closing, because a close frame has been queued or received.
    Closing,
    /// The connection of the WebSocket has ended, with or without a closing handshake.
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
            endpoint.send_raw(&switching_protocols(exchange, key, agreed));
        }
        // The interval until the first ping starts here.
        endpoint.deadline(&shared.rules, || now);
        let handle = WebSocketHandle {
            id: exchange.id(),
            listener: exchange.listener(),
            peer: exchange.peer(),
            is_substream: key.is_none(),
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
            waits_for_capacity: Cell::new(false),
            wakes_next: Cell::new(false),
            is_behind: Cell::new(false),
            read_while_behind: Cell::new(0),
            half_closed_at: Cell::new(None),
            unwritten_pings: Cell::new(0),
            is_mid_message: Cell::new(false),
            read_rate: RateMeter::default(),
            send_rate: RateMeter::default(),
            connection_charge: Charge::new(&shared.connections.budget, Share::Connections),
            queue_charge: Charge::new(&shared.connections.budget, Share::Outgoing),
            message_charge: Charge::new(&shared.connections.budget, Share::Incoming),
            record: SessionRecord::begin(&shared.log, exchange),
            session: RefCell::default(),
            is_evicted: Cell::new(false),
            ends_after_write: Cell::new(false),
            pending_release: Cell::new(0),
            own_pending_release: Cell::new(0),
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

    /// Returns true if the application has capacity for another message of the WebSocket.
    pub(super) fn has_capacity(&self) -> bool {
        self.shared.dispatch.application.poll_capacity(self.peer, self.id)
    }

    /// Returns the extensions that were negotiated in the WebSocket's opening handshake.
    pub(super) fn extensions(&self) -> Extensions {
        self.compression.as_ref().map(|with| with.agreed)
    }

    /// Sends a message to the client of the WebSocket.
    pub(crate) fn send(self: &Rc<Self>, kind: MessageKind, payload: Payload) {
        let payload = payload.without_charge();
        let len = payload.as_bytes().len();
        if let Some(record) = &self.record {
            record.on_sent(len);
        }
        if let Some(records) = &self.shared.shiny {
            let mut session = self.session.borrow_mut();
            match kind {
                MessageKind::Text => session.observe(payload.as_bytes(), records),
                MessageKind::Binary => session.count(payload.as_bytes()),
            }
        }
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

    /// Returns the number of output bytes in the send queue, including messages that wait for a
    /// compression.
    pub(super) fn pending(&self) -> usize {
        self.endpoint.borrow().pending() + self.queued_behind()
    }

    /// Checks the send queue after it has grown. Closes the WebSocket if the queue is too long, and
    /// otherwise charges the memory budget for it. Returns the number of queued bytes, including
    /// messages that are being compressed.
    pub(super) fn check_send_queue(&self) -> usize {
        let endpoint = self.endpoint.borrow();
        let waiting = endpoint.pending() + self.deferred_bytes.get();
        // The sum is compared first because it is cheap.
        let is_full = waiting > self.shared.connections.limits().ws_max_send_queue_size
            && endpoint.bytes_after_current() + self.queued_behind()
                > self.shared.connections.limits().ws_max_send_queue_size
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

    /// Returns true if the server must stop reading from the client, because the client is behind
    /// with reading and has sent more than [`MAX_READ_WHILE_BEHIND`] bytes meanwhile. Without this
    /// limit, an application that responds to each message could queue any number of responses.
    /// Also updates `is_behind`.
    pub(super) fn update_throttled(&self) -> bool {
        self.update_behind() && self.read_while_behind.get() > MAX_READ_WHILE_BEHIND
    }

    /// Returns true if the server may read from the client again, because the client was behind
    /// with reading and has caught up. Updates `is_behind`.
    pub(super) fn update_released(&self) -> bool {
        self.is_behind.get() && !self.update_behind()
    }

    /// Updates `is_behind`, and returns true if the client is behind with reading. A client falls
    /// behind when the send queue exceeds a fourth of its maximum size ([`BEHIND_FRACTION`]), and
    /// has caught up when the queue has shrunk to at most an eighth of that size.
    fn update_behind(&self) -> bool {
        let mark = self.shared.connections.limits().ws_max_send_queue_size / BEHIND_FRACTION;
        let mark = if self.is_behind.get() { mark / 2 } else { mark };
        let endpoint = self.endpoint.borrow();
        // The sum is compared first because it is cheap.
        let is_behind = endpoint.pending() + self.deferred_bytes.get() > mark
            && endpoint.may_send()
            && endpoint.bytes_after_current() + self.queued_behind() > mark;
        if !is_behind {
            self.read_while_behind.set(0);
        }
        self.is_behind.set(is_behind);
        is_behind
    }

    /// Aborts the WebSocket if its client has disconnected while the server reads nothing from it.
    /// A closed connection is aborted at once. A half-closed connection is aborted only when
    /// nothing has been read or written for the stall timeout, because the client's earlier
    /// messages can still be delivered.
    pub(super) fn on_read_paused(&self, now: u32) {
        match self.transport.borrow().as_ref().map_or(PeerState::Closed, Transport::peer_state) {
            PeerState::Open => self.half_closed_at.set(None),
            PeerState::Closed => self.abort(),
            PeerState::HalfClosed => {
                let since = self.half_closed_at.get().unwrap_or(now);
                self.half_closed_at.set(Some(since));
                if now.wrapping_sub(since) > self.shared.connections.clock.ticks().stall {
                    self.abort();
                }
            }
        }
    }

    /// Records that `written` bytes of the send queue have been written, and returns true if more
    /// than pings were among them.
    pub(super) fn on_written(&self, written: usize) -> bool {
        let pings = self.unwritten_pings.get();
        self.unwritten_pings.set(pings.saturating_sub(written));
        written > pings
    }

    /// Sends a ping to the client, unless so much output is queued that the ping would be delayed.
    pub(crate) fn ping(&self) {
        let mut endpoint = self.endpoint.borrow_mut();
        let pending = endpoint.pending();
        if pending < self.shared.rules.high_water && endpoint.ping(self.shared.now()).is_ok() {
            let ping_len = endpoint.pending() - pending;
            drop(endpoint);
            self.unwritten_pings.set(self.unwritten_pings.get() + ping_len);
            self.wake();
        }
    }

    /// Starts the closing handshake of the WebSocket. A close code that must not be sent is
    /// replaced by 1001, as in httpuv.
    pub(crate) fn close(&self, code: u16, reason: &[u8]) {
        if self.is_compressing() {
            return self.defer_close(code, reason);
        }
        let code =
            (code != NO_STATUS).then(|| CloseCode::new(code).unwrap_or(CloseCode::GOING_AWAY));
        self.queue_close_frame(code, &String::from_utf8_lossy(reason));
        self.wake();
    }

    /// Queues a close frame, unless the WebSocket has already queued one.
    pub(super) fn queue_close_frame(&self, code: Option<CloseCode>, reason: &str) {
        let mut endpoint = self.endpoint.borrow_mut();
        if endpoint.close(code, reason, &self.shared.rules, || self.shared.now()) {
            self.read_rate.start();
        }
    }

    /// Frees all resources of the WebSocket, even if other tasks still hold the handle.
    pub(super) fn end(&self) {
        self.endpoint.borrow_mut().abort();
        self.session.take();
        self.backlog.end();
        self.drop_deferred();
        self.transport.take();
        self.queue_charge.set(0);
        self.on_message_dropped();
        self.on_freed();
    }

    /// Closes the WebSocket's connection without a closing handshake.
    pub(crate) fn abort(&self) {
        self.endpoint.borrow_mut().abort();
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Records that the client has read some output, and restarts its deadlines for reading.
    pub(super) fn on_write_progress(&self, now: Tick) {
        self.last_progress.set(now.0);
        self.endpoint.borrow_mut().on_progress(&self.shared.rules, now);
    }

    /// Records that `n` bytes were read from the client. `is_mid_message` says whether the client
    /// has sent only a part of its current message.
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

    /// Enforces the deadlines of the WebSocket, and sends a ping if one is due. Called at each
    /// clock tick.
    fn sweep(&self, now: u32) {
        let ticks = &self.shared.connections.clock.ticks();
        let state = self.state();
        let is_open = state == WebSocketState::Open;
        if state == WebSocketState::Closing || (is_open && self.is_write_blocked.get()) {
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
            // Input has arrived and is not read, so the client is not silent.
            endpoint.on_input(0);
        }
        let pending = endpoint.pending();
        let due = endpoint.tick(&self.shared.rules, Tick(now));
        if due == Due::Ping {
            let ping_len = endpoint.pending() - pending;
            self.unwritten_pings.set(self.unwritten_pings.get() + ping_len);
        }
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

    /// Returns `None`, because a WebSocket is never too slow. It is evicted only if its peer or its
    /// network is the largest.
    fn slowness(&self, _now: u32) -> Option<u32> {
        None
    }

    fn eviction_cost(&self) -> Option<EvictionCost> {
        match self.state() {
            _ if self.ends_after_write.get() => None,
            WebSocketState::Open => Some(EvictionCost::Session),
            WebSocketState::Closing => Some(EvictionCost::Idle),
            WebSocketState::Closed => None,
        }
    }

    fn peer(&self) -> Peer {
        self.peer
    }

    fn charged(&self, share: Share) -> usize {
        match share {
            Share::Connections => self.connection_charge.bytes(),
            Share::Incoming => self.message_charge.bytes(),
            Share::Outgoing => self.queue_charge.bytes(),
            Share::Descriptors => 0,
        }
    }

    fn held(&self, share: Share) -> usize {
        self.evictable_bytes(share)
    }

    fn evict_for_memory(&self, share: Share, _held: usize) {
        self.evict_for(share);
    }

    fn charge_trailers(&self, bytes: usize) {
        self.charge_stream_trailers(bytes);
    }

    fn evict_for_slot(&self) {
        self.close_now(Rejection::TooManyConnections, "too many connections");
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

    fn is_websocket(&self) -> bool {
        true
    }

    fn wake(&self) {
        WebSocketHandle::wake(self);
    }
}
