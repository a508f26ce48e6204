//! A WebSocket as the rest of the I/O thread sees it: what waits for its peer, and its deadlines.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::Waker;

use rookery_exchange::{Charge, Exchange, ListenerId, MessageKind, Payload, Share, SocketId};
use rookery_websocket::protocol::{CloseCode, OpCode, accept_key, encode_close, encode_control};

use super::NO_STATUS;
use crate::hub::Hub;
use crate::outbound::Outbound;
use crate::overload::FREE;
use crate::pace::Pace;
use crate::rejection::Rejection;
use crate::stream::unsent;

/// Bytes waiting to be written past which the application is told when they have been.
const HIGH_WATER: usize = 1 << 20;

/// A WebSocket as the rest of the I/O thread sees it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) id: SocketId,
    pub(crate) listener: ListenerId,
    pub(super) out: RefCell<Outbound>,
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) state: Cell<State>,
    /// The tick at which the close frame was sent or the peer last read something.
    pub(super) since: Cell<u32>,
    pub(super) last_ping: Cell<u32>,
    pub(super) was_high: Cell<bool>,
    pub(super) is_blocked: Cell<bool>,
    /// The socket, as long as the task has it.
    pub(super) fd: Cell<Option<RawFd>>,
    /// Whether the peer is inside a message of its, and the server waits for the rest.
    pub(super) is_inside: Cell<bool>,
    /// How fast the peer is at reading what waits for it, and at sending the rest of a message.
    pub(super) reading: Pace,
    pub(super) sending: Pace,
    /// What it is charged for: what waits to be sent, and what has been put together of a message.
    pub(super) queue: Charge,
    pub(super) message: Charge,
    /// Whether the message was given up for want of room, and the bytes of it that have not gone yet.
    pub(super) is_evicted: Cell<bool>,
    pub(super) leaving: Cell<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// A close frame is on its way to the peer; its own is awaited.
    Closing,
    /// It is over, in order or not.
    Over,
}

impl Mailbox {
    /// Sends a message.
    pub(crate) fn send(&self, hub: &Hub, kind: MessageKind, payload: Payload) {
        if self.state.get() != State::Open {
            return;
        }
        let mut out = self.out.borrow_mut();
        if let Some(buffer) = out.push(&hub.buffers, kind, payload) {
            hub.link.recycle(buffer);
        }
        if out.len() > HIGH_WATER {
            self.was_high.set(true);
        }
        // The sum is looked at first: it is at hand.
        let is_full = out.len() > hub.limits.socket_queue && out.behind() > hub.limits.socket_queue;
        let is_larger = out.len() > self.queue.bytes().max(FREE);
        drop(out);
        if is_full {
            self.refuse(hub, Rejection::Unread, "not read in time");
        } else if is_larger {
            self.hold_queue(hub);
        }
        self.wake();
    }

    /// Starts the closing handshake. A code that must not be sent becomes 1001, as with httpuv.
    pub(crate) fn close(&self, hub: &Hub, code: u16, reason: &[u8]) {
        let code = (code != NO_STATUS).then(|| CloseCode::new(code).unwrap_or(CloseCode::GOING_AWAY));
        self.say_goodbye(hub, code, &String::from_utf8_lossy(reason));
        self.wake();
    }

    /// Queues the one close frame.
    pub(super) fn say_goodbye(&self, hub: &Hub, code: Option<CloseCode>, reason: &str) {
        if self.state.get() == State::Open {
            self.out.borrow_mut().push_with(&hub.buffers, |out| encode_close(out, code, reason, None));
            self.state.set(State::Closing);
            self.since.set(hub.tick());
            self.reading.start();
        }
    }

    /// It is over, and holds nothing any more, whoever still knows it.
    pub(super) fn end(&self, hub: &Hub) {
        self.state.set(State::Over);
        self.fd.set(None);
        self.out.take();
        self.queue.set(0);
        self.has_dropped(hub);
    }

    /// Drops the connection.
    pub(crate) fn abort(&self) {
        self.state.set(State::Over);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Notes that bytes came, after which the peer is inside a message or not.
    pub(super) fn has_read(&self, n: usize, is_inside: bool) {
        if is_inside && !self.is_inside.replace(true) {
            self.sending.start();
        } else if !is_inside {
            self.is_inside.set(false);
        }
        self.sending.count(n);
    }

    /// Looks at the deadlines and sends the ping that is due; called each tick.
    pub(crate) fn sweep(&self, hub: &Hub, now: u32) {
        let ticks = &hub.ticks;
        let state = self.state.get();
        let is_read = state == State::Closing || (state == State::Open && self.is_blocked.get());
        let is_slow = is_read && {
            let taken = self.reading.taken(self.fd.get().and_then(unsent));
            if taken > 0 {
                self.since.set(now);
            }
            self.reading.tick(ticks.message_rate, taken)
        };
        let passed = now.wrapping_sub(self.since.get());
        let is_late = match state {
            State::Open => self.is_blocked.get() && (is_slow || passed > ticks.stall),
            // Its time begins when it has read what was sent before.
            State::Closing => is_slow || passed > ticks.close,
            State::Over => false,
        };
        if is_late {
            if self.state.get() == State::Open {
                hub.report(self.id, Rejection::Unread);
            }
            return self.abort();
        }
        let is_inside = self.is_inside.get() && self.state.get() == State::Open;
        if is_inside && self.sending.tick(ticks.message_rate, self.sending.take()) {
            self.is_inside.set(false);
            hub.report(self.id, Rejection::MessageTimeout);
            self.say_goodbye(hub, Some(CloseCode::POLICY), "message too slow");
            self.wake();
        }
        if self.state.get() == State::Open && now.wrapping_sub(self.last_ping.get()) >= ticks.ping.max(1) {
            self.last_ping.set(now);
            if self.out.borrow().len() == 0 {
                let ping = |out: &mut Vec<u8>| encode_control(out, OpCode::Ping, None, b"");
                self.out.borrow_mut().push_with(&hub.buffers, ping);
                self.wake();
            }
        }
    }
}

/// Opens the WebSocket that an exchange has accepted, before its connection knows: what the application sends next
/// is for it already.
pub(crate) fn open(hub: &Hub, exchange: &Exchange) {
    let mailbox = Rc::new(Mailbox {
        id: exchange.id(),
        listener: exchange.listener(),
        out: RefCell::default(),
        waker: RefCell::default(),
        state: Cell::new(State::Open),
        since: Cell::new(hub.tick()),
        last_ping: Cell::new(hub.tick()),
        was_high: Cell::new(false),
        is_blocked: Cell::new(false),
        fd: Cell::new(None),
        is_inside: Cell::new(false),
        reading: Pace::default(),
        sending: Pace::default(),
        queue: Charge::new(&hub.budget, Share::Queues),
        message: Charge::new(&hub.budget, Share::Messages),
        is_evicted: Cell::new(false),
        leaving: Cell::new(0),
    });
    mailbox.out.borrow_mut().push_raw(&hub.buffers, &switching_protocols(exchange));
    hub.open_socket(mailbox.id, mailbox);
}

/// The answer that accepts a handshake (RFC 6455, 4.2.2), with the application's headers.
fn switching_protocols(exchange: &Exchange) -> Vec<u8> {
    let key = exchange.header(b"sec-websocket-key").unwrap_or_default();
    let mut head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nDate: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n",
        httpdate::fmt_http_date(std::time::SystemTime::now()),
        String::from_utf8_lossy(&accept_key(key)),
    )
    .into_bytes();
    for (name, value) in exchange.reply_headers() {
        let is_ours = [&b"date"[..], b"connection", b"upgrade", b"sec-websocket-accept", b"content-length"]
            .iter()
            .any(|ours| name.eq_ignore_ascii_case(ours));
        if !is_ours {
            for part in [name, b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
    }
    head.extend_from_slice(b"\r\n");
    head
}
