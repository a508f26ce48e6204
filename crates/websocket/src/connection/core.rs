//! The writing side of a connection, and what both sides share.
//!
//! Whole frames are encoded into one buffer and leave it in as few writes as the transport allows. A large plain message of
//! a server goes out beside its header without a copy. A pong waits in a slot of its own while the transport takes nothing:
//! a peer that pings and never reads makes nothing grow.

use std::fmt;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connection::buffers;
use crate::connection::config::Config;
use crate::connection::error::Error;
use crate::connection::keep_alive::Pings;
use crate::connection::masks::next_mask;
use crate::connection::message::Kind;
use crate::connection::outgoing::Frame;
use crate::connection::stats::Statistics;
use crate::connection::timer::after;
use crate::protocol::deflate::{Deflater, Fin};
use crate::protocol::{
    Answer, CloseCode, CloseReason, Closing, Header, MAX_HEADER, MaskKey, OpCode, Role, Violation,
    append_frame, encode_close, encode_control, encode_message,
};

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendStatus {
    /// Taken, and the queue is below its high-water mark.
    Sent,
    /// Taken, but the peer does not keep up: wait with [`drained`](crate::Connection::drained) before sending more.
    Backpressure,
    /// Not taken: the queue was full.
    Dropped,
}

/// Whether a message is being written in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    Nothing,
    Pieces,
    Abandoned,
}

pub(crate) struct Core<S> {
    pub(crate) io: S,
    role: Role,
    /// Whole frames; the first `written` bytes have left.
    out: Vec<u8>,
    written: usize,
    /// Whether the transport took nothing when it was last asked.
    is_blocked: bool,
    /// Whether the transport has to be flushed.
    is_unflushed: bool,
    /// The pong that is to go out once the transport takes something; the newest wins (RFC 6455, 5.5.3). On the heap: few
    /// connections ever need it.
    pong: Option<Box<Pong>>,
    pub(crate) closing: Closing,
    /// When the peer must have answered our close frame.
    pub(crate) close_deadline: Option<Instant>,
    deflater: Option<Box<Deflater>>,
    pub(crate) writing: Writing,
    pub(crate) pings: Pings,
    pub(crate) stats: Statistics,
    high_water: usize,
    queue_max: usize,
    close_timeout: std::time::Duration,
    /// What the transport's readiness wakes, where several tasks write; without it, the task that asks.
    pub(crate) write_waker: Option<Waker>,
    /// Writing failed.
    broken: Option<io::ErrorKind>,
}

struct Pong {
    len: u8,
    payload: [u8; 125],
}

/// Bytes from which a server's plain message is written beside its header instead of copied behind it. A copy of 2 KiB costs
/// about as much as the second entry of a vectored write.
const DIRECT_FROM: usize = 2 << 10;

impl<S> Core<S> {
    pub(crate) fn new(io: S, role: Role, deflater: Option<Deflater>, config: &Config) -> Core<S> {
        Core {
            io,
            role,
            out: Vec::new(),
            written: 0,
            is_blocked: false,
            is_unflushed: false,
            pong: None,
            closing: Closing::default(),
            close_deadline: None,
            deflater: deflater.map(Box::new),
            writing: Writing::Nothing,
            pings: Pings::new(config.keep_alive),
            stats: Statistics::default(),
            high_water: config.high_water,
            queue_max: config.queue_max,
            close_timeout: config.close_timeout,
            write_waker: None,
            broken: None,
        }
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Bytes encoded and not yet taken by the transport.
    pub(crate) fn pending(&self) -> usize {
        self.out.len() - self.written
    }

    pub(crate) fn is_above_mark(&self) -> bool {
        self.pending() >= self.high_water
    }

    pub(crate) fn has_output(&self) -> bool {
        self.pending() > 0 || self.pong.is_some() || self.is_unflushed
    }

    /// Gives the buffer back when nothing is in it.
    pub(crate) fn release(&mut self) {
        if self.pending() == 0 && self.out.capacity() > 0 {
            buffers::give_growing(std::mem::take(&mut self.out));
            self.written = 0;
        }
    }

    /// Takes a message if there is room.
    pub(crate) fn queue(&mut self, message: &Frame<'_>) -> Result<SendStatus, Error> {
        self.check_between_messages()?;
        self.check_open()?;
        if self.pending() > 0 && self.pending() + message.payload.len() > self.queue_max {
            self.stats.dropped += 1;
            return Ok(SendStatus::Dropped);
        }
        self.encode(message);
        Ok(self.status())
    }

    /// Queues a piece of the message that is being written.
    pub(crate) fn queue_piece(&mut self, kind: Option<Kind>, fin: Fin, payload: &[u8]) -> Result<(), Error> {
        self.check_open()?;
        self.prepare_buffer();
        let opcode = kind.map_or(OpCode::Continuation, Kind::opcode);
        let mask = self.mask();
        self.stats.payload_sent += payload.len() as u64;
        self.stats.messages_sent += u64::from(fin == Fin::Last);
        self.stats.fragments_sent += u64::from(fin == Fin::More);
        encode_message(&mut self.out, opcode, fin, mask, payload, self.deflater.as_deref_mut());
        Ok(())
    }

    /// Queues a ping; its number.
    pub(crate) fn queue_ping(&mut self, now: Instant) -> Result<u32, Error> {
        self.check_open()?;
        let (number, payload) = self.pings.send(now);
        self.write_control(OpCode::Ping, &payload);
        Ok(number)
    }

    /// Queues our close frame, unless one went out before.
    pub(crate) fn start_close(&mut self, code: Option<CloseCode>, reason: &str) {
        if self.closing.start() {
            self.write_close(code, reason);
            self.close_deadline = Some(after(Instant::now(), self.close_timeout));
        }
    }

    /// When the end of the connection is to be given up: from now, if nothing has begun it.
    pub(crate) fn bound_close(&mut self) -> Instant {
        *self.close_deadline.get_or_insert_with(|| after(Instant::now(), self.close_timeout))
    }

    /// The peer broke the protocol, or this side can not go on: it is told so, and nothing it sends counts any more.
    pub(crate) fn fail(&mut self, code: CloseCode, reason: &str) {
        if self.closing.fail() {
            self.write_close(Some(code), reason);
        }
        self.close_deadline = Some(after(Instant::now(), self.close_timeout));
    }

    /// A control frame has come.
    pub(crate) fn handle_control(&mut self, opcode: OpCode, payload: &[u8]) -> Result<(), Violation> {
        self.stats.controls_received += 1;
        match opcode {
            // Half a frame may have left before the transport failed: nothing may follow it.
            OpCode::Ping if self.broken.is_some() || !self.closing.may_send() => {}
            // Each ping of a batch is answered, in order, while the transport takes what is written.
            OpCode::Ping if !self.is_blocked && !self.is_above_mark() => {
                self.write_control(OpCode::Pong, payload);
            }
            OpCode::Ping => {
                let pong = self.pong.get_or_insert_with(|| Box::new(Pong { len: 0, payload: [0; 125] }));
                pong.len = payload.len() as u8;
                pong.payload[..payload.len()].copy_from_slice(payload);
            }
            OpCode::Pong => {
                if let Some(round_trip) = self.pings.pong(payload) {
                    self.stats.round_trip = Some(round_trip);
                }
            }
            OpCode::Close => {
                let reason = CloseReason::parse(payload)?;
                if let Answer::Close(code) = self.closing.receive(&reason) {
                    self.write_close(code, "");
                }
                self.close_deadline = Some(after(Instant::now(), self.close_timeout));
            }
            _ => {}
        }
        Ok(())
    }

    /// The transport does not take anything more.
    pub(crate) fn break_output(&mut self, error: &io::Error) {
        self.broken = Some(error.kind());
        self.out.clear();
        self.written = 0;
        self.pong = None;
        self.is_unflushed = false;
    }

    fn status(&self) -> SendStatus {
        if self.is_above_mark() { SendStatus::Backpressure } else { SendStatus::Sent }
    }

    fn check_open(&self) -> Result<(), Error> {
        if let Some(kind) = self.broken {
            return Err(Error::Io(kind.into()));
        }
        if self.closing.may_send() { Ok(()) } else { Err(Error::Closed) }
    }

    /// No message may stand within another, not even if its writer was leaked.
    fn check_between_messages(&self) -> Result<(), Error> {
        if self.writing == Writing::Nothing { Ok(()) } else { Err(Error::Abandoned) }
    }

    fn write_close(&mut self, code: Option<CloseCode>, reason: &str) {
        if self.broken.is_none() {
            self.prepare_buffer();
            let mask = self.mask();
            encode_close(&mut self.out, code, reason, mask);
            self.stats.controls_sent += 1;
        }
    }

    fn write_control(&mut self, opcode: OpCode, payload: &[u8]) {
        self.prepare_buffer();
        let mask = self.mask();
        encode_control(&mut self.out, opcode, mask, payload);
        self.stats.controls_sent += 1;
    }

    fn mask(&self) -> Option<MaskKey> {
        (self.role == Role::Client).then(next_mask)
    }

    fn prepare_buffer(&mut self) {
        if self.out.capacity() == 0 {
            self.out = buffers::take_growing();
        } else if self.written > self.out.len() / 2 {
            // What has left is cut off once it is more than what has not: each byte is moved at most once.
            self.out.drain(..self.written);
            self.written = 0;
        }
    }

    fn encode(&mut self, message: &Frame<'_>) {
        self.prepare_buffer();
        let payload = message.payload;
        self.stats.messages_sent += 1;
        self.stats.payload_sent += payload.len() as u64;
        if let (Some(prepared), Role::Server) = (message.prepared, self.role) {
            self.out.extend_from_slice(prepared.encoded(self.deflater.as_deref()));
            return;
        }
        let mask = self.mask();
        let opcode = message.kind.opcode();
        match &mut self.deflater {
            Some(deflater) if deflater.is_worth(payload.len()) => {
                let start = self.out.len();
                encode_message(&mut self.out, opcode, Fin::Last, mask, payload, Some(deflater));
                self.stats.compressed.0 += payload.len() as u64;
                self.stats.compressed.1 += (self.out.len() - start) as u64;
            }
            _ => append_frame(&mut self.out, opcode, true, mask, payload),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Core<S> {
    /// Writes what is queued.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_output() {
            return Poll::Ready(Ok(()));
        }
        // Where several tasks write, the transport wakes all that wait, not only the last that asked.
        let Some(waker) = self.write_waker.take() else { return self.poll_flush_for(cx) };
        let polled = self.poll_flush_for(&mut Context::from_waker(&waker));
        self.write_waker = Some(waker);
        polled
    }

    /// Waits until the queue is below its high-water mark.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.check_open()?;
        if self.is_above_mark() {
            if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
                self.break_output(&error);
                return Poll::Ready(Err(error.into()));
            }
            if self.is_above_mark() {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for room, takes the message whole, and writes what the transport takes. Pending means: not taken.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        message: &Frame<'_>,
    ) -> Poll<Result<SendStatus, Error>> {
        self.check_between_messages()?;
        ready!(self.poll_ready(cx))?;
        if !self.write_direct(cx, message)? {
            self.encode(message);
        }
        if let Poll::Ready(Err(error)) = self.poll_flush(cx) {
            self.break_output(&error);
            return Poll::Ready(Err(error.into()));
        }
        Poll::Ready(Ok(self.status()))
    }

    /// Writes a large plain message beside its header, without copying what the transport takes at once. Whether that is the
    /// way this message goes.
    fn write_direct(&mut self, cx: &mut Context<'_>, message: &Frame<'_>) -> Result<bool, Error> {
        let payload = message.payload;
        if payload.len() < DIRECT_FROM
            || self.role == Role::Client
            || self.deflater.as_ref().is_some_and(|deflater| deflater.is_worth(payload.len()))
            || self.pending() > 0
            || self.write_waker.is_some()
            || !self.io.is_write_vectored()
        {
            return Ok(false);
        }
        let mut bytes = [0; MAX_HEADER];
        let header = Header {
            fin: true,
            rsv1: false,
            opcode: message.kind.opcode(),
            mask: None,
            len: payload.len() as u64,
        };
        let head = header.write(&mut bytes);
        let slices = [IoSlice::new(&bytes[..head]), IoSlice::new(payload)];
        let n = match Pin::new(&mut self.io).poll_write_vectored(cx, &slices) {
            Poll::Pending => 0,
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => {
                self.break_output(&error);
                return Err(error.into());
            }
        };
        self.is_unflushed |= n > 0;
        self.stats.bytes_sent += n as u64;
        self.stats.messages_sent += 1;
        self.stats.payload_sent += payload.len() as u64;
        if n < head + payload.len() {
            self.is_blocked = true;
            self.prepare_buffer();
            self.out.extend_from_slice(&bytes[n.min(head)..head]);
            self.out.extend_from_slice(&payload[n.saturating_sub(head)..]);
        }
        Ok(true)
    }

    fn poll_flush_for(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(pong) = self.pong.take_if(|_| !self.is_blocked || self.written == self.out.len()) {
                self.write_control(OpCode::Pong, &pong.payload[..usize::from(pong.len)]);
            }
            if self.written == self.out.len() {
                break;
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.out[self.written..]) {
                Poll::Pending => {
                    self.is_blocked = true;
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.is_blocked = false;
                    self.is_unflushed = true;
                    self.written += n;
                    self.stats.bytes_sent += n as u64;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
        self.out.clear();
        self.written = 0;
        if self.is_unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: fmt::Debug> fmt::Debug for Core<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("io", &self.io)
            .field("role", &self.role)
            .field("pending", &self.pending())
            .field("closing", &self.closing)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
