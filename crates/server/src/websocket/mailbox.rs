//! A WebSocket as the rest of the I/O thread sees it: what waits for its peer, and its deadlines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use rookery_exchange::{Charge, Exchange, ListenerId, MessageKind, Payload, Share, SocketId};
use rookery_websocket::protocol::{CloseCode, OpCode, encode_close, encode_control};

use super::handshake::switching_protocols;
use super::send_queue::SendQueue;
use super::shared::Shared;
use crate::net::transport::Transport;
use crate::peers::rate::Pace;
use crate::peers::room::FREE;
use crate::peers::table::Peer;
use crate::rejection::Rejection;

/// The close code that stands for none (RFC 6455, 7.4.1).
pub(super) const NO_STATUS: u16 = 1005;

/// Bytes waiting to be written past which the application is told when they have been.
const HIGH_WATER: usize = 1 << 20;

/// A WebSocket as the rest of the I/O thread sees it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) id: SocketId,
    pub(crate) listener: ListenerId,
    pub(super) shared: Rc<Shared>,
    pub(super) out: RefCell<SendQueue>,
    /// The socket, as long as the task has it.
    pub(super) transport: RefCell<Option<Transport>>,
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) state: Cell<State>,
    /// The tick at which the close frame was sent or the peer last read something.
    pub(super) since: Cell<u32>,
    pub(super) last_ping: Cell<u32>,
    pub(super) was_high: Cell<bool>,
    pub(super) is_blocked: Cell<bool>,
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
    pub(super) fn new(shared: &Rc<Shared>, exchange: &Exchange) -> Rc<Mailbox> {
        let mailbox = Mailbox {
            id: exchange.id(),
            listener: exchange.listener(),
            shared: Rc::clone(shared),
            out: RefCell::default(),
            transport: RefCell::default(),
            waker: RefCell::default(),
            state: Cell::new(State::Open),
            since: Cell::new(shared.now()),
            last_ping: Cell::new(shared.now()),
            was_high: Cell::new(false),
            is_blocked: Cell::new(false),
            is_inside: Cell::new(false),
            reading: Pace::default(),
            sending: Pace::default(),
            queue: Charge::new(&shared.peers.budget, Share::Queues),
            message: Charge::new(&shared.peers.budget, Share::Messages),
            is_evicted: Cell::new(false),
            leaving: Cell::new(0),
        };
        mailbox.out.borrow_mut().push_raw(&shared.buffers, &switching_protocols(exchange));
        Rc::new(mailbox)
    }

    /// Sends a message.
    pub(crate) fn send(&self, kind: MessageKind, payload: Payload) {
        if self.state.get() != State::Open {
            return;
        }
        let mut out = self.out.borrow_mut();
        if let Some(buffer) = out.push(&self.shared.buffers, kind, payload) {
            self.shared.dispatch.application.recycle(buffer);
        }
        if out.len() > HIGH_WATER {
            self.was_high.set(true);
        }
        // The sum is looked at first: it is at hand.
        let is_full = out.len() > self.shared.peers.limits.socket_queue
            && out.behind() > self.shared.peers.limits.socket_queue;
        let is_larger = out.len() > self.queue.bytes().max(FREE);
        drop(out);
        if is_full {
            self.refuse(Rejection::Unread, "not read in time");
        } else if is_larger {
            self.hold_queue();
        }
        self.wake();
    }

    /// Starts the closing handshake. A code that must not be sent becomes 1001, as with httpuv.
    pub(crate) fn close(&self, code: u16, reason: &[u8]) {
        let code = (code != NO_STATUS).then(|| CloseCode::new(code).unwrap_or(CloseCode::GOING_AWAY));
        self.say_goodbye(code, &String::from_utf8_lossy(reason));
        self.wake();
    }

    /// Queues the one close frame.
    pub(super) fn say_goodbye(&self, code: Option<CloseCode>, reason: &str) {
        if self.state.get() == State::Open {
            self.out
                .borrow_mut()
                .push_with(&self.shared.buffers, |out| encode_close(out, code, reason, None));
            self.state.set(State::Closing);
            self.since.set(self.shared.now());
            self.reading.start();
        }
    }

    /// It is over, and holds nothing any more, whoever still knows it.
    pub(super) fn end(&self) {
        self.state.set(State::Over);
        self.transport.take();
        self.out.take();
        self.queue.set(0);
        self.has_dropped();
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
}

impl Peer for Mailbox {
    fn listener(&self) -> ListenerId {
        self.listener
    }

    fn serial(&self) -> u64 {
        self.id
    }

    /// Looks at the deadlines and sends the ping that is due; called each tick.
    fn sweep(&self, now: u32) {
        let ticks = &self.shared.peers.clock.ticks;
        let state = self.state.get();
        let is_read = state == State::Closing || (state == State::Open && self.is_blocked.get());
        let is_slow = is_read && {
            let taken = self.reading.taken(self.transport.borrow().as_ref().and_then(Transport::unsent));
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
                self.shared.report(self.id, Rejection::Unread);
            }
            return self.abort();
        }
        let is_inside = self.is_inside.get() && self.state.get() == State::Open;
        if is_inside && self.sending.tick(ticks.message_rate, self.sending.take()) {
            self.is_inside.set(false);
            self.shared.report(self.id, Rejection::MessageTimeout);
            self.say_goodbye(Some(CloseCode::POLICY), "message too slow");
            self.wake();
        }
        if self.state.get() == State::Open && now.wrapping_sub(self.last_ping.get()) >= ticks.ping.max(1) {
            self.last_ping.set(now);
            if self.out.borrow().len() == 0 {
                let ping = |out: &mut Vec<u8>| encode_control(out, OpCode::Ping, None, b"");
                self.out.borrow_mut().push_with(&self.shared.buffers, ping);
                self.wake();
            }
        }
    }

    /// It is always being served.
    fn slowness(&self, _now: u32) -> Option<u32> {
        None
    }

    fn held(&self, share: Share) -> usize {
        self.held_of(share)
    }

    fn evict(&self, share: Share, _held: usize) {
        self.end_for_others(share);
    }

    fn give_seat(&self) {
        self.abort();
    }

    fn stop(&self) {
        self.close(CloseCode::GOING_AWAY.get(), b"");
    }

    fn abort(&self) {
        Mailbox::abort(self);
    }

    fn is_owed(&self) -> bool {
        false
    }

    fn is_ending(&self) -> bool {
        self.state.get() != State::Open
    }

    fn wake(&self) {
        Mailbox::wake(self);
    }
}
