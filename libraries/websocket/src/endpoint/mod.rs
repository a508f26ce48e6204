//! One side of a WebSocket as a protocol core without I/O. An adapter does the I/O. There are two
//! adapters: [`Connection`](crate::Connection), over any tokio transport, and the server's
//! WebSocket driver. The trait [`Adapter`] has the types and constants in which they differ.
//!
//! An adapter has these tasks:
//! - It passes received bytes to [`Endpoint::receive`].
//! - It writes the bytes of [`Endpoint::output`].
//! - It calls [`Endpoint::tick`] when [`Endpoint::deadline`] is reached.
//! - It performs the [`IoAction`] that the endpoint asks for, such as shutting down the transport.
//!
//! The endpoint decides everything that must be the same for all adapters, such as the order of
//! frames, the closing handshake, pings, and the response to a protocol violation.
//!
//! No function here waits: each call is complete when it returns. An adapter's future can therefore
//! be dropped between two calls without losing anything.
//!
//! # Allocation
//! A frame allocates nothing except through [`Adapter::take_buffer`], with two rare exceptions: a
//! pong that has to wait because the peer does not read, and a payload that is queued without being
//! copied.

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

/// The protocol state of one side of a WebSocket connection, without I/O. The adapter, which does
/// the I/O, owns the [`Decoder`](crate::protocol::Decoder), so that it can send while a received
/// message still borrows from the decoder.
pub struct Endpoint<S: Adapter> {
    queue: Queue<S>,
    deflater: Option<Box<Deflater>>,
    /// The pong that waits to be queued because the peer does not read fast enough. A newer pong
    /// replaces it (RFC 6455, 5.5.3). It is on the heap because few connections need it.
    pong: Option<Box<Pong>>,
    pings: Pings<S::Time>,
    /// The reason in the peer's close frame. It is empty if there was no close frame.
    reason: Box<str>,
    /// The deadline of the current step of closing the connection, after which the step is given
    /// up.
    deadline: Option<S::Time>,
    role: Role,
    closing: Closing,
    shutdown: ShutdownState,
    writing: Writing,
    /// True while the transport accepts no bytes. Until a write succeeds again, pongs are not
    /// queued, and only the newest one is kept.
    holds_pongs: bool,
    /// True once a write has failed. Part of a frame may have been sent, so no other frame can be
    /// sent after it.
    is_broken: bool,
    counters: S::Counters,
}

/// The timed action that [`Endpoint::tick`] has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// No deadline has passed, so no action was taken.
    Nothing,
    /// A keep-alive ping was queued.
    Ping,
    /// The connection was failed with the close code 1008, because the peer sent nothing for longer
    /// than [`Rules::ping_timeout`] after a ping.
    Silence,
    /// A step of closing the connection was given up, because it took longer than
    /// [`Rules::close_timeout`].
    Close,
}

impl<S: Adapter> Endpoint<S> {
    /// Returns the endpoint of a WebSocket connection whose opening handshake is complete.
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

    /// Returns the role of this side of the connection: client or server.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the compressor for sent messages, if compression was negotiated.
    pub fn deflater(&self) -> Option<&Deflater> {
        self.deflater.as_deref()
    }

    /// Takes the compressor out of the endpoint, so that other code can compress the next messages.
    /// Until [`Endpoint::return_deflater`] is called, no message that has to be compressed may be
    /// sent.
    pub fn take_deflater(&mut self) -> Option<Box<Deflater>> {
        self.deflater.take()
    }

    /// Returns the compressor to the endpoint after [`Endpoint::take_deflater`].
    pub fn return_deflater(&mut self, deflater: Box<Deflater>) {
        self.deflater = Some(deflater);
    }

    /// Returns the counters of this connection's messages, frames and bytes.
    pub fn counters(&self) -> &S::Counters {
        &self.counters
    }

    /// Returns the connection's counters, so that an adapter can count events that the endpoint
    /// does not see.
    pub fn counters_mut(&mut self) -> &mut S::Counters {
        &mut self.counters
    }

    /// Returns true while messages and pings may be sent: until either side has sent a close frame.
    pub fn may_send(&self) -> bool {
        self.closing.may_send()
    }

    /// Returns true while frames from the peer are processed and not ignored.
    pub fn may_receive(&self) -> bool {
        self.closing.may_receive()
    }

    /// Returns how the connection ended. While it is open, returns how it would end if it broke
    /// now.
    pub fn ending(&self) -> Ending {
        self.closing.ending()
    }

    /// Returns the reason in the peer's close frame. It is empty if there was no close frame.
    pub fn close_reason(&self) -> &str {
        &self.reason
    }

    /// Returns what the adapter has to do next with its transport.
    #[inline]
    pub fn io_action(&self) -> IoAction {
        self.shutdown.io_action()
    }

    /// Returns true if the current I/O action is [`IoAction::Serve`], that is, while the connection
    /// is open.
    #[inline]
    pub fn is_serving(&self) -> bool {
        matches!(self.shutdown.io_action(), IoAction::Serve)
    }

    /// Returns true if the adapter still has to read bytes from the peer, either to process them or
    /// to discard them before the connection is closed.
    pub fn wants_input(&self) -> bool {
        !self.shutdown.is_read_closed()
            && (self.closing.may_receive() || self.shutdown.has_failed())
    }

    /// Records that `n` bytes have been received from the peer.
    #[inline]
    pub fn on_input(&mut self, n: usize) {
        self.pings.on_input();
        self.counters.count(|statistics| statistics.bytes_received += n as u64);
    }

    /// Queues a ping and returns the ping's number. [`Endpoint::is_answered`] says whether the ping
    /// with this number was answered.
    ///
    /// # Errors
    /// [`SendError::Closed`] after a close frame, and [`SendError::Broken`] after a failed write.
    pub fn ping(&mut self, now: S::Time) -> Result<u32, SendError> {
        self.check_open()?;
        let (number, payload) = self.pings.next_ping(now);
        self.send_control(OpCode::Ping, &payload);
        Ok(number)
    }

    /// Returns true once the ping with this number, or a later ping, has been answered by a pong.
    pub fn is_answered(&self, number: u32) -> bool {
        self.pings.is_answered(number)
    }

    /// Returns the time at which the adapter has to call [`Endpoint::tick`] next. Reads the clock
    /// only at the first call.
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

    /// Performs the timed action that is due at `now`, such as sending a keep-alive ping, and
    /// returns it.
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

    /// Starts the closing handshake with a close frame. Returns false if either side has closed the
    /// connection before. Without a code, the close frame is empty.
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

    /// Fails the connection (RFC 6455, 7.1.7): sends a close frame if possible, and ignores all
    /// further input from the peer.
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

    /// Restarts the timeout of the current step of closing the connection, because the peer has
    /// read some of the queued output.
    pub fn on_progress(&mut self, rules: &Rules<TimeSpan<S>>, now: S::Time) {
        if let Some(deadline) = &mut self.deadline {
            *deadline = now.after(rules.close_timeout);
        }
    }

    /// Returns the deadline at which the current step of closing the connection is given up. If the
    /// timeout is not running, starts it.
    pub fn ensure_close_deadline(
        &mut self,
        rules: &Rules<TimeSpan<S>>,
        now: impl FnOnce() -> S::Time,
    ) -> S::Time {
        *self.deadline.get_or_insert_with(|| now().after(rules.close_timeout))
    }

    /// Records that the peer's byte stream has ended or cannot be read.
    pub fn on_read_closed(&mut self) {
        self.shutdown.on_read_closed(S::CLOSE_MODE);
    }

    /// Records that all queued output has been written, or cannot be written.
    pub fn on_flushed(&mut self) {
        self.shutdown.on_flushed(self.role, S::CLOSE_MODE);
    }

    /// Records that the peer's remaining input has been discarded, or that it is too much to
    /// discard.
    pub fn on_drained(&mut self) {
        self.shutdown.on_drained();
    }

    /// Records that the adapter has shut down the sending side of the transport.
    pub fn on_shut_down(&mut self) {
        self.shutdown.on_shut_down(S::CLOSE_MODE);
    }

    /// Gives up the current step of closing the connection, and begins the next step.
    pub fn give_up_step(&mut self) {
        self.shutdown.give_up_step(S::CLOSE_MODE);
    }

    /// Ends the connection at once: drops queued output, and sends and receives nothing more.
    pub fn abort(&mut self) {
        let _ = self.closing.fail();
        self.shutdown.abort();
        self.queue.clear();
        self.pong = None;
    }
}

/// The type of durations on the clock of an adapter.
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
