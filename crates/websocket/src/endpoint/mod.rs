//! One end of a WebSocket, without I/O: the core that every driver of a connection is a shell around.
//!
//! Bytes that came go in by [`Endpoint::receive`], bytes to be written are in [`Endpoint::output`], the time is an argument, and
//! [`Endpoint::deadline`] says when it is to be told again. What is to be done with the transport is one word, [`Duty`]. In
//! here is what must not be decided twice: what may be sent when, the closing handshake and its codes, what is said to a
//! peer that breaks the protocol, pings and pongs, how long each step may take, and what waits to be written.
//!
//! Nothing here waits, so there is nothing to cancel: a call is done when it returns, and a shell whose future is dropped
//! between two has lost nothing. The two shells are [`Connection`](crate::Connection), over any transport of tokio, and the
//! server's driver of WebSockets; what differs between them is a [`Shell`].
//!
//! # Allocation
//! None for a frame, but for buffers of [`Shell::take_buffer`]. A pong that has to wait is on the heap, as is what lies behind a payload
//! that was handed over.

mod ending;
mod pings;
mod queue;
mod receiving;
mod sending;
mod shell;
mod statistics;

use std::fmt;

pub use ending::Duty;
pub use queue::Queue;
pub use receiving::Received;
pub use sending::Unsent;
#[doc(hidden)]
pub use shell::Sealed;
pub use shell::{Parting, Rules, Shell, Tally, Time};
pub use statistics::Statistics;

use crate::endpoint::ending::Course;
use crate::endpoint::pings::{PingDue, Pings, earlier};
use crate::endpoint::sending::{Pong, Writing};
use crate::protocol::deflate::Deflater;
use crate::protocol::{CloseCode, Closing, Ending, OpCode, Role};

/// One end of a WebSocket. Reading is a [`Decoder`](crate::protocol::Decoder) of the shell's, so that a message can be looked at
/// while something is sent.
pub struct Endpoint<S: Shell> {
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
    course: Course,
    writing: Writing,
    /// Whether pongs wait until something was written.
    holds_pongs: bool,
    /// Whether writing failed. Half a frame may have left: nothing may follow it.
    is_broken: bool,
    tally: S::Tally,
}

/// What [`Endpoint::tick`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing is late.
    Nothing,
    /// A ping was queued.
    Ping,
    /// The peer was silent for longer than [`Rules::silence`]: it is told 1008.
    Silence,
    /// A step of the closing took longer than [`Rules::close`], and is given up.
    Close,
}

impl<S: Shell> Endpoint<S> {
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
            course: Course::START,
            writing: Writing::Nothing,
            holds_pongs: false,
            is_broken: false,
            tally: S::Tally::default(),
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

    /// Lends it away, to compress elsewhere what is to be sent next. Until [`Endpoint::give_deflater`] nothing may be sent that is
    /// to be compressed.
    pub fn take_deflater(&mut self) -> Option<Box<Deflater>> {
        self.deflater.take()
    }

    /// Takes it back.
    pub fn give_deflater(&mut self, deflater: Box<Deflater>) {
        self.deflater = Some(deflater);
    }

    /// What was counted.
    pub fn tally(&self) -> &S::Tally {
        &self.tally
    }

    /// To count what only the shell sees.
    pub fn tally_mut(&mut self) -> &mut S::Tally {
        &mut self.tally
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
    pub fn duty(&self) -> Duty {
        self.course.duty()
    }

    /// Whether that is [`Duty::Serve`].
    #[inline]
    pub fn is_serving(&self) -> bool {
        matches!(self.course.duty(), Duty::Serve)
    }

    /// Whether bytes of the peer are of any use: those that count, and those that have to be thrown away.
    pub fn wants_input(&self) -> bool {
        !self.course.is_cut_off() && (self.closing.may_receive() || self.course.has_failed())
    }

    /// Bytes have come.
    #[inline]
    pub fn heard(&mut self, n: usize) {
        self.pings.heard();
        self.tally.count(|statistics| statistics.bytes_received += n as u64);
    }

    /// Queues a ping, by whose number [`Endpoint::is_answered`] knows it.
    ///
    /// # Errors
    /// Why not.
    pub fn ping(&mut self, now: S::Time) -> Result<u32, Unsent> {
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
        if self.course.is_over() {
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
        if self.course.is_over() {
            return Due::Nothing;
        }
        if self.deadline.is_some_and(|deadline| now.has_reached(deadline)) {
            self.expire();
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
            PingDue::Ping if rules.silence.is_some() => match self.ping(now) {
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
            self.deadline = Some(now().after(rules.close));
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
        self.deadline = Some(now().after(rules.close));
        self.course.fail();
    }

    /// The peer reads what it was sent before, which is a step of the closing: its time begins anew.
    pub fn moved(&mut self, rules: &Rules<TimeSpan<S>>, now: S::Time) {
        if let Some(deadline) = &mut self.deadline {
            *deadline = now.after(rules.close);
        }
    }

    /// When the end is to be given up: from now, if nothing has begun it.
    pub fn bound(&mut self, rules: &Rules<TimeSpan<S>>, now: impl FnOnce() -> S::Time) -> S::Time {
        *self.deadline.get_or_insert_with(|| now().after(rules.close))
    }

    /// The peer's stream has ended, or can not be read.
    pub fn cut_off(&mut self) {
        self.course.cut_off(S::PARTING);
    }

    /// All that waited has been written, or can not be.
    pub fn flushed(&mut self) {
        self.course.flushed(self.role, S::PARTING);
    }

    /// What was there to be thrown away has been, or there is too much of it.
    pub fn drained(&mut self) {
        self.course.drained();
    }

    /// Our side of the stream has ended.
    pub fn shut(&mut self) {
        self.course.shut(S::PARTING);
    }

    /// The step of the end that is being waited for is given up.
    pub fn expire(&mut self) {
        self.course.expire(S::PARTING);
    }

    /// It is over, however far it was: nothing is sent or received any more, and what waits is dropped.
    pub fn abort(&mut self) {
        let _ = self.closing.fail();
        self.course.abort();
        self.queue.clear();
        self.pong = None;
    }
}

/// The difference of two times of a shell.
pub type TimeSpan<S> = <<S as Shell>::Time as Time>::Span;

impl<S: Shell> fmt::Debug for Endpoint<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("role", &self.role)
            .field("pending", &self.pending())
            .field("closing", &self.closing)
            .field("duty", &self.duty())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
