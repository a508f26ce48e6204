//! The core of a WebSocket connection: the protocol endpoint with its transport. The reading and
//! the writing half of a connection share it.
//!
//! Frames are encoded into one buffer and written with as few calls as the transport allows. A
//! server writes a large uncompressed message without a copy, by a vectored write of the header and
//! the payload.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::connection::buffer_pool;
use crate::connection::config::{Config, KeepAlive};
use crate::connection::error::Error;
use crate::connection::mask_keys::next_mask;
use crate::connection::message::Kind;
use crate::connection::outgoing::Frame;
use crate::connection::timer::after;
use crate::endpoint::{Adapter, CloseMode, Endpoint, Rules, Sealed, SendError, Statistics, Time};
use crate::protocol::deflate::{Deflater, Fin};
use crate::protocol::{CloseCode, MAX_HEADER, MaskKey, OpCode, Role};

/// The result of sending a message: sent, sent with back-pressure, or dropped.
///
/// The compiler warns when the result is ignored, because a dropped message must not go unnoticed:
/// ```compile_fail
/// # #![deny(unused_must_use)]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rookery_websocket::Error> {
/// use rookery_websocket::{Config, Parts};
/// let mut server = Parts::server(tokio::io::duplex(64).0).connection(Config::default());
/// server.queue("hello")?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the message may have been dropped, or the peer may not keep up"]
pub enum SendStatus {
    /// The message was queued, and the send queue is below its high-water mark.
    Sent,
    /// The message was queued, but the peer reads too slowly. Wait with
    /// [`drained`](crate::Connection::drained) before sending more.
    Backpressure,
    /// The message was dropped because the send queue is full.
    Dropped,
}

/// The type that connects the protocol endpoint (the state machine of the WebSocket protocol) to
/// `Connection`. It provides tokio's clock and the thread's message buffers.
#[derive(Debug)]
pub(crate) struct Tokio;

impl Sealed for Tokio {}

impl Adapter for Tokio {
    type Time = Instant;
    type Payload = Infallible;
    type Counters = Statistics;

    // All frames are in one buffer, so that one write takes them all.
    const BUFFER_SIZE: usize = usize::MAX;
    const COPY_MAX: usize = usize::MAX;
    const SENDS_REASON: bool = false;
    const CLOSE_MODE: CloseMode = CloseMode::Prompt;

    fn bytes(payload: &Infallible) -> &[u8] {
        match *payload {}
    }

    fn mask() -> MaskKey {
        next_mask()
    }

    fn take_buffer() -> Vec<u8> {
        buffer_pool::take_message_buffer()
    }

    fn return_buffer(buffer: Vec<u8>) {
        buffer_pool::return_message_buffer(buffer);
    }
}

impl Time for Instant {
    type Span = Duration;

    fn after(self, span: Duration) -> Instant {
        after(self, span)
    }

    fn has_reached(self, deadline: Instant) -> bool {
        self >= deadline
    }

    fn round_trip(self, sent: Instant) -> Option<Duration> {
        Some(self.saturating_duration_since(sent))
    }
}

pub(crate) struct Core<S> {
    pub(crate) io: S,
    pub(crate) endpoint: Endpoint<Tokio>,
    pub(crate) rules: Rules<Duration>,
    queue_max: usize,
    /// True if the transport has to be flushed, because bytes were written since the last flush.
    is_unflushed: bool,
    /// The waker that is passed to the transport if several tasks write to the connection. If it is
    /// `None`, the transport gets the waker of the task that polls the connection.
    pub(crate) write_waker: Option<Waker>,
    /// The kind of the I/O error that made a write fail, if one failed.
    broken: Option<io::ErrorKind>,
}

/// The minimum size in bytes of an uncompressed message that a server sends by a vectored write of
/// header and payload. Copying 2 KiB costs about as much as the second slice of a vectored write,
/// so smaller messages are copied into the send queue's buffer. A client masks, and so copies,
/// each message.
const DIRECT_FROM: usize = 2 << 10;

impl<S> Core<S> {
    pub(crate) fn new(io: S, role: Role, deflater: Option<Deflater>, config: &Config) -> Core<S> {
        let mut rules = Rules::new(config.close_timeout, config.high_water);
        if let Some(KeepAlive { interval, timeout }) = config.keep_alive {
            rules = rules.pings(interval, Some(timeout));
        }
        Core {
            io,
            endpoint: Endpoint::new(role, deflater),
            rules,
            queue_max: config.queue_max,
            is_unflushed: false,
            write_waker: None,
            broken: None,
        }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        self.endpoint.counters()
    }

    /// Returns the number of encoded bytes that are queued, because the transport has not accepted
    /// them yet.
    pub(crate) fn pending(&self) -> usize {
        self.endpoint.pending()
    }

    pub(crate) fn is_above_high_water(&self) -> bool {
        self.pending() >= self.rules.high_water
    }

    pub(crate) fn has_output(&self) -> bool {
        self.is_unflushed || self.endpoint.has_output()
    }

    /// Returns true if the send queue has space for a message with `len` bytes of payload. An empty
    /// queue accepts any message.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let pending = self.pending();
        pending == 0 || pending.saturating_add(len) <= self.queue_max
    }

    /// Queues a message for sending, or drops it if the send queue is full.
    pub(crate) fn queue(&mut self, message: &Frame<'_>) -> Result<SendStatus, Error> {
        self.check(self.endpoint.check_message())?;
        if !self.has_room(message.payload.len()) {
            self.endpoint.counters_mut().dropped += 1;
            return Ok(SendStatus::Dropped);
        }
        self.encode(message);
        Ok(self.status())
    }

    /// Queues a message for sending, also if the send queue is full. The caller has waited until
    /// the queue was below its high-water mark.
    #[cfg(feature = "stream")]
    pub(crate) fn queue_ready(&mut self, message: &Frame<'_>) -> Result<(), Error> {
        self.check(self.endpoint.check_message())?;
        self.encode(message);
        Ok(())
    }

    /// Queues a fragment of the fragmented message that is being sent.
    pub(crate) fn queue_fragment(
        &mut self,
        kind: Option<Kind>,
        fin: Fin,
        payload: &[u8],
    ) -> Result<(), Error> {
        let opcode = kind.map_or(OpCode::Continuation, Kind::opcode);
        let sent = self.endpoint.send_fragment(opcode, fin, payload);
        self.check(sent)
    }

    /// Queues a ping and returns its number, by which its pong is recognised.
    pub(crate) fn queue_ping(&mut self, now: Instant) -> Result<u32, Error> {
        let sent = self.endpoint.ping(now);
        self.check(sent)
    }

    /// Queues this side's close frame, unless one has been queued before.
    pub(crate) fn start_close(&mut self, code: Option<CloseCode>, reason: &str) {
        self.endpoint.close(code, reason, &self.rules, Instant::now);
    }

    /// Returns the deadline at which the current step of closing the connection is given up. If the
    /// timeout is not running, starts it.
    pub(crate) fn ensure_close_deadline(&mut self) -> Instant {
        self.endpoint.ensure_close_deadline(&self.rules, Instant::now)
    }

    /// Records that a write to the transport has failed, so that nothing more is sent.
    #[cold]
    pub(crate) fn on_write_failed(&mut self, error: &io::Error) {
        self.broken = Some(error.kind());
        self.is_unflushed = false;
        self.endpoint.on_write_failed();
    }

    #[inline]
    pub(crate) fn check<T>(&self, sent: Result<T, SendError>) -> Result<T, Error> {
        match sent {
            Ok(sent) => Ok(sent),
            Err(unsent) => Err(self.refused(unsent)),
        }
    }

    #[cold]
    fn refused(&self, unsent: SendError) -> Error {
        match (unsent, self.broken) {
            (SendError::Broken, Some(kind)) => Error::Io(kind.into()),
            (SendError::WithinMessage, _) => Error::Abandoned,
            (SendError::Broken | SendError::Closed, _) => Error::Closed,
        }
    }

    fn status(&self) -> SendStatus {
        if self.is_above_high_water() { SendStatus::Backpressure } else { SendStatus::Sent }
    }

    fn encode(&mut self, message: &Frame<'_>) {
        self.endpoint.send(message.kind.opcode(), message.payload);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Core<S> {
    /// Writes all queued bytes to the transport and flushes it.
    #[inline]
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_output() {
            return Poll::Ready(Ok(()));
        }
        // When several tasks write, the transport has to wake all of them and not only the last.
        let Some(waker) = self.write_waker.take() else { return self.poll_flush_for(cx) };
        let polled = self.poll_flush_for(&mut Context::from_waker(&waker));
        self.write_waker = Some(waker);
        polled
    }

    /// Writes all queued bytes to the transport. If the write fails, records that nothing more can
    /// be sent.
    #[inline]
    pub(crate) fn poll_flush_noting_failure(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        self.poll_flush(cx).map_err(|error| {
            self.on_write_failed(&error);
            error.into()
        })
    }

    /// Waits until the send queue is below its high-water mark.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.check(self.endpoint.check_open())?;
        if self.is_above_high_water() {
            self.poll_below_high_water(cx)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    #[cold]
    fn poll_below_high_water(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Poll::Ready(Err(error)) = self.poll_flush_noting_failure(cx) {
            return Poll::Ready(Err(error));
        }
        if self.is_above_high_water() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Waits until the send queue is below its high-water mark, queues the whole message, and
    /// writes what the transport accepts. `Pending` means that the message was not queued.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        message: &Frame<'_>,
    ) -> Poll<Result<SendStatus, Error>> {
        self.check(self.endpoint.check_message())?;
        if self.is_above_high_water() {
            ready!(self.poll_below_high_water(cx))?;
        }
        if !self.write_direct(cx, message)? {
            self.encode(message);
        }
        if let Poll::Ready(Err(error)) = self.poll_flush_noting_failure(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(self.status()))
    }

    /// Writes a large uncompressed message by a vectored write of its header and its payload. Only
    /// bytes that the transport does not accept at once are copied. Returns false if nothing was
    /// done, because the message cannot be written in this way.
    fn write_direct(&mut self, cx: &mut Context<'_>, message: &Frame<'_>) -> Result<bool, Error> {
        let payload = message.payload;
        if payload.len() < DIRECT_FROM
            || self.endpoint.role() == Role::Client
            || self
                .endpoint
                .deflater()
                .is_some_and(|deflater| deflater.is_worth_compressing(payload.len()))
            || self.pending() > 0
            || self.write_waker.is_some()
            || !self.io.is_write_vectored()
        {
            return Ok(false);
        }
        let mut header = [0; MAX_HEADER];
        let head = self.endpoint.direct_header(message.kind.opcode(), payload.len(), &mut header);
        let slices = [IoSlice::new(&header[..head]), IoSlice::new(payload)];
        let n = match Pin::new(&mut self.io).poll_write_vectored(cx, &slices) {
            Poll::Pending => 0,
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => {
                self.on_write_failed(&error);
                return Err(error.into());
            }
        };
        self.is_unflushed |= n > 0;
        self.endpoint.on_direct_write(&header[..head], payload, n);
        Ok(true)
    }

    // A separate function keeps the check for output small enough to be inlined into its callers.
    #[inline(never)]
    fn poll_flush_for(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let bytes = self.endpoint.output(&self.rules).first();
            if bytes.is_empty() {
                break;
            }
            match Pin::new(&mut self.io).poll_write(cx, bytes) {
                Poll::Pending => {
                    self.endpoint.on_write_blocked();
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => {
                    self.is_unflushed = true;
                    if self.endpoint.on_written(n) {
                        break;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
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
            .field("endpoint", &self.endpoint)
            .field("statistics", self.statistics())
            .finish_non_exhaustive()
    }
}
