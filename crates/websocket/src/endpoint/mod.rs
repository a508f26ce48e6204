//! One end of a WebSocket, without I/O: the core that every driver of a connection is a adapter around.
//!
//! Bytes that came go in by [`Endpoint::receive`], bytes to be written are in [`Endpoint::output`], the time is an argument, and
//! [`Endpoint::deadline`] says when it is to be told again. What is to be done with the transport is one word, [`IoAction`]. In
//! here is what must not be decided twice: what may be sent when, the closing handshake and its codes, what is said to a
//! peer that breaks the protocol, pings and pongs, how long each step may take, and what waits to be written.
//!
//! Nothing here waits, so there is nothing to cancel: a call is done when it returns, and a adapter whose future is dropped
//! between two has lost nothing. The two adapters are [`Connection`](crate::Connection), over any transport of tokio, and the
//! server's driver of WebSockets; what differs between them is a [`Adapter`].
//!
//! # Allocation
//! None for a frame, but for buffers of [`Adapter::take_buffer`]. A pong that has to wait is on the heap, as is what lies behind a payload
//! that was handed over.

mod adapter;
mod pings;
mod queue;
mod receiving;
mod sending;
mod shutdown;
mod statistics;

use std::fmt;

#[doc(hidden)]
pub use adapter::Sealed;
pub use adapter::{Adapter, CloseMode, Counters, Rules, Time};
pub use queue::Queue;
pub use receiving::Received;
pub use sending::SendError;
pub use shutdown::IoAction;
pub use statistics::Statistics;

use crate::endpoint::pings::{PingDue, Pings, earlier};
use crate::endpoint::sending::{Pong, Writing};
use crate::endpoint::shutdown::ShutdownState;
use crate::protocol::deflate::Deflater;
use crate::protocol::{CloseCode, Closing, Ending, OpCode, Role};

/// One end of a WebSocket. Reading is a [`Decoder`](crate::protocol::Decoder) of the adapter's, so that a message can be looked at
/// while something is sent.
pub struct Endpoint<S: Adapter> {
    queue: Queue<S>,
    deflater: Option<Box<Deflater>>,
    /// The pong that waits until the peer keeps up again; the newest wins (RFC 6455, 5.5.3). On the heap: few connections ever
    /// need it.
    pong: Option<Box<Pong>>,
    pings: Pings<S::Time>,
    /// What the peer's close frame says for a person.
    reason: Box<str>,
    /// When the step of the closing that is being waited for is given up.
    deadline: Option<S::Time>,
    role: Role,
    closing: Closing,
    shutdown: ShutdownState,
    writing: Writing,
    /// Whether pongs wait until something was written.
    holds_pongs: bool,
    /// Whether writing failed. Half a frame may have left: nothing may follow it.
    is_broken: bool,
    counters: S::Counters,
}

/// What [`Endpoint::tick`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing is late.
    Nothing,
    /// A ping was queued.
    Ping,
    /// The peer was silent for longer than [`Rules::ping_timeout`]: it is told 1008.
    Silence,
    /// A step of the closing took longer than [`Rules::close_timeout`], and is given up.
    Close,
}

impl<S: Adapter> Endpoint<S> {
    /// An open connection, after its handshake.
    pub fn new(role: Role, deflater: Option<Deflater>) -> Endpoint<S> {
        Endpoint {
            queue: Queue::default(),
            deflater: deflater.map(Box::new),
            pong: None,
            pings: Pings::default(),
            reason: Box::default(),
            deadline: None,
            role,
            closing: Closing::default(),
            shutdown: ShutdownState::START,
            writing: Writing::Nothing,
            holds_pongs: false,
            is_broken: false,
            counters: S::Counters::default(),
        }
    }

    /// Our side.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What compresses, if that was agreed on.
    pub fn deflater(&self) -> Option<&Deflater> {
        self.deflater.as_deref()
    }

    /// Lends it away, to compress elsewhere what is to be sent next. Until [`Endpoint::return_deflater`] nothing may be sent that is
    /// to be compressed.
    pub fn take_deflater(&mut self) -> Option<Box<Deflater>> {
        self.deflater.take()
    }

    /// Takes it back.
    pub fn return_deflater(&mut self, deflater: Box<Deflater>) {
        self.deflater = Some(deflater);
    }

    /// What was counted.
    pub fn counters(&self) -> &S::Counters {
        &self.counters
    }

    /// To count what only the adapter sees.
    pub fn counters_mut(&mut self) -> &mut S::Counters {
        &mut self.counters
    }

    /// Whether messages and pings may still be sent: not after a close frame of either side.
    pub fn may_send(&self) -> bool {
        self.closing.may_send()
    }

    /// Whether what the peer sends still counts.
    pub fn may_receive(&self) -> bool {
        self.closing.may_receive()
    }

    /// How the connection ended, or would if it broke now.
    pub fn ending(&self) -> Ending {
        self.closing.ending()
    }

    /// What the peer's close frame says for a person; empty without one.
    pub fn close_reason(&self) -> &str {
        &self.reason
    }

    /// What is to be done with the transport.
    #[inline]
    pub fn io_action(&self) -> IoAction {
        self.shutdown.io_action()
    }

    /// Whether that is [`IoAction::Serve`].
    #[inline]
    pub fn is_serving(&self) -> bool {
        matches!(self.shutdown.io_action(), IoAction::Serve)
    }

    /// Whether bytes of the peer are of any use: those that count, and those that have to be thrown away.
    pub fn wants_input(&self) -> bool {
        !self.shutdown.is_read_closed()
            && (self.closing.may_receive() || self.shutdown.has_failed())
    }

    /// Bytes have come.
    #[inline]
    pub fn on_input(&mut self, n: usize) {
        self.pings.on_input();
        self.counters.count(|statistics| statistics.bytes_received += n as u64);
    }

    /// Queues a ping, by whose number [`Endpoint::is_answered`] knows it.
    ///
    /// # Errors
    /// Why not.
    pub fn ping(&mut self, now: S::Time) -> Result<u32, SendError> {
        self.check_open()?;
        let (number, payload) = self.pings.send(now);
        self.send_control(OpCode::Ping, &payload);
        Ok(number)
    }

    /// Whether ping `number`, or a later one, was answered.
    pub fn is_answered(&self, number: u32) -> bool {
        self.pings.is_answered(number)
    }

    /// When [`Endpoint::tick`] is to be called. Asks for the time once, at the first call.
    pub fn deadline(
        &mut self,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> Option<S::Time> {
        if self.shutdown.is_over() {
            return None;
        }
        let ping = if self.may_send() { self.pings.deadline(rules, now) } else { None };
        match (self.deadline, ping) {
            (Some(close), Some(ping)) => Some(earlier(close, ping)),
            (close, ping) => close.or(ping),
        }
    }

    /// Looks at what has become due by `now`, and does it.
    pub fn tick(&mut self, rules: &Rules<TimeSpan<S>>, now: S::Time) -> Due {
        if self.shutdown.is_over() {
            return Due::Nothing;
        }
        if self.deadline.is_some_and(|deadline| now.has_reached(deadline)) {
            self.give_up_step();
            return Due::Close;
        }
        if !self.may_send() {
            return Due::Nothing;
        }
        match self.pings.due(rules, now) {
            PingDue::GiveUp => {
                self.fail(CloseCode::POLICY, "", rules, || now);
                Due::Silence
            }
            PingDue::Ping if rules.ping_timeout.is_some() => match self.ping(now) {
                Ok(_) => Due::Ping,
                Err(_) => Due::Nothing,
            },
            PingDue::Ping if !self.is_broken && !self.has_output() => {
                self.send_control(OpCode::Ping, b"");
                Due::Ping
            }
            PingDue::Ping | PingDue::Nothing => Due::Nothing,
        }
    }

    /// Starts the closing handshake, unless it was before. Without a code the close frame is empty.
    pub fn close(
        &mut self,
        code: Option<CloseCode>,
        reason: &str,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> bool {
        let is_first = self.closing.start();
        if is_first {
            self.send_close(code, reason);
            self.deadline = Some(now().after(rules.close_timeout));
        }
        is_first
    }

    /// This side can not go on with the peer: it is told so, if it can be, and nothing it sends counts any more.
    pub fn fail(
        &mut self,
        code: CloseCode,
        reason: &str,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) {
        if self.closing.fail() {
            self.send_close(Some(code), reason);
        }
        self.deadline = Some(now().after(rules.close_timeout));
        self.shutdown.fail();
    }

    /// The peer reads what it was sent before, which is a step of the closing: its time begins anew.
    pub fn on_progress(&mut self, rules: &Rules<TimeSpan<S>>, now: S::Time) {
        if let Some(deadline) = &mut self.deadline {
            *deadline = now.after(rules.close_timeout);
        }
    }

    /// When the end is to be given up: from now, if nothing has begun it.
    pub fn ensure_close_deadline(
        &mut self,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> S::Time {
        *self.deadline.get_or_insert_with(|| now().after(rules.close_timeout))
    }

    /// The peer's stream has ended, or can not be read.
    pub fn on_read_closed(&mut self) {
        self.shutdown.on_read_closed(S::CLOSE_MODE);
    }

    /// All that waited has been written, or can not be.
    pub fn on_flushed(&mut self) {
        self.shutdown.on_flushed(self.role, S::CLOSE_MODE);
    }

    /// What was there to be thrown away has been, or there is too much of it.
    pub fn on_drained(&mut self) {
        self.shutdown.on_drained();
    }

    /// Our side of the stream has ended.
    pub fn on_shut_down(&mut self) {
        self.shutdown.on_shut_down(S::CLOSE_MODE);
    }

    /// The step of the end that is being waited for is given up.
    pub fn give_up_step(&mut self) {
        self.shutdown.give_up_step(S::CLOSE_MODE);
    }

    /// It is over, however far it was: nothing is sent or received any more, and what waits is dropped.
    pub fn abort(&mut self) {
        let _ = self.closing.fail();
        self.shutdown.abort();
        self.queue.clear();
        self.pong = None;
    }
}

/// The difference of two times of a adapter.
pub type TimeSpan<S> = <<S as Adapter>::Time as Time>::Span;

impl<S: Adapter> fmt::Debug for Endpoint<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("role", &self.role)
            .field("pending", &self.pending())
            .field("closing", &self.closing)
            .field("action", &self.io_action())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
