//! The reading half of a WebSocket connection.
//!
//! The progress of a read is stored here and not in the future that performs the read. If the
//! future is dropped, no bytes are lost, and the next read continues.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::connection::buffer_pool::{self, ReadBuffer};
use crate::connection::cancel::Canceller;
use crate::connection::core::Core;
use crate::connection::error::Error;
use crate::connection::message::{Chunk, Kind, Message};
use crate::connection::timer::{Timer, after};
use crate::endpoint::{Due, IoAction};
use crate::protocol::{
    Decoder, ReadMode, Step, StepBytes, StepKind, Violation, WholeFrame, is_utf8,
};

#[derive(Debug)]
pub(crate) struct Inbound {
    decoder: Decoder,
    /// The buffer for bytes from the transport; `buffer[start..end]` has not been decoded. The
    /// buffer is kept while it contains undecoded bytes, or a message that is borrowed from it.
    buffer: Option<ReadBuffer>,
    start: usize,
    end: usize,
    /// A message that arrived while `ping` waited for its pong. The next read returns it.
    held: Option<Step>,
    /// The error that ended the connection, if any.
    error: Option<Error>,
    reported: Reported,
    wait: Wait,
    timer: Timer,
    canceller: Option<Canceller>,
}

/// How long the current read waits for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Forever,
    /// The read waits for at most this duration, counted from the first poll that has to wait.
    For(Duration),
    Until(Instant),
}

/// How the end of the connection was reported to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    Nothing,
    Closed,
    Failed,
}

/// The maximum number of bytes from the peer that are read and discarded after a protocol
/// violation, before the connection is dropped.
const DRAIN_MAX: usize = 256 << 10;

impl Inbound {
    pub(crate) fn new(decoder: Decoder, leftover: &[u8]) -> Inbound {
        let mut inbound = Inbound {
            decoder,
            buffer: None,
            start: 0,
            end: 0,
            held: None,
            error: None,
            reported: Reported::Nothing,
            wait: Wait::Forever,
            timer: Timer::default(),
            canceller: None,
        };
        if !leftover.is_empty() {
            let mut buffer = buffer_pool::take_read_buffer();
            if buffer.len() < leftover.len() {
                buffer = leftover.into();
            } else {
                buffer[..leftover.len()].copy_from_slice(leftover);
            }
            inbound.end = leftover.len();
            inbound.buffer = Some(buffer);
        }
        inbound
    }

    pub(crate) fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    pub(crate) fn canceller(&mut self) -> Canceller {
        self.canceller.get_or_insert_with(Canceller::new).clone()
    }

    pub(crate) fn hold(&mut self, step: Step) {
        self.held = Some(step);
    }

    /// Returns the message in the decoded event `step`. The message is valid until the next read.
    pub(crate) fn message(&self, step: &Step) -> Message<'_> {
        if matches!(step.kind, StepKind::Data { is_text: true, is_rest: true, .. }) {
            return self.rest(step);
        }
        Message::new(kind_of(step), self.bytes(step))
    }

    /// Returns the rest of a text message whose beginning was read in chunks. The whole message is
    /// valid UTF-8, but the rest may begin within a character.
    #[cold]
    fn rest(&self, step: &Step) -> Message<'_> {
        let bytes = self.bytes(step);
        Message::new(if is_utf8(bytes) { Kind::Text } else { Kind::Binary }, bytes)
    }

    /// Returns the chunk of a message in the decoded event `step`. The chunk is valid until the
    /// next read.
    pub(crate) fn chunk(&self, step: &Step) -> Chunk<'_> {
        let is_last = matches!(step.kind, StepKind::Data { is_last: true, .. });
        Chunk { kind: kind_of(step), bytes: self.bytes(step), is_last }
    }

    /// Returns true if the buffer contains bytes that are not decoded yet. The response to a
    /// message can then be written together with the responses to the next messages.
    pub(crate) fn has_more(&self) -> bool {
        self.start < self.end
    }

    fn bytes(&self, step: &Step) -> &[u8] {
        match (&step.place, &self.buffer) {
            (StepBytes::Fed(range), Some(buffer)) => &buffer[range.clone()],
            (place, _) => self.decoder.kept(place),
        }
    }

    /// Returns the next message if all of it is already in the buffer. Does not wait, and reads
    /// neither the clock nor the transport.
    #[inline]
    pub(crate) fn next_buffered<S>(&mut self, core: &mut Core<S>) -> Option<WholeFrame> {
        if self.start == self.end || self.held.is_some() || !core.endpoint.is_serving() {
            return None;
        }
        if self.canceller.as_ref().is_some_and(Canceller::is_cancelled) {
            return None;
        }
        let buffer = self.buffer.as_deref_mut()?;
        let frame = self.decoder.decode_whole_frame(&mut buffer[self.start..self.end])?;
        self.start += frame.frame_len();
        core.endpoint.on_whole_frame(frame);
        Some(frame)
    }

    /// Returns the content of the message that [`Inbound::next_buffered`] has just found. It is
    /// valid until the next read.
    #[inline]
    pub(crate) fn buffered_message(&self, frame: WholeFrame) -> Message<'_> {
        let kind = if frame.is_text { Kind::Text } else { Kind::Binary };
        let buffer = self.buffer.as_deref().unwrap_or_default();
        Message::new(kind, &buffer[frame.range_before(self.start)])
    }

    /// Returns the next message or chunk, or `None` after a complete closing handshake.
    #[inline(never)]
    pub(crate) fn poll_step<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
        mode: ReadMode,
    ) -> Poll<Result<Option<Step>, Error>> {
        // Inlined, this function would take registers from `next_buffered`, which most messages of
        // a burst use.
        self.poll_for(core, cx, mode, |_| false)
    }

    /// Waits for the next whole message and returns it. Returns `None` as soon as `is_done` returns
    /// true, which is checked at first and after each control frame, or when the closing handshake
    /// is complete.
    pub(crate) fn poll_until<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
        is_done: impl Fn(&Core<S>) -> bool,
    ) -> Poll<Result<Option<Step>, Error>> {
        if is_done(core) {
            return Poll::Ready(Ok(None));
        }
        self.poll_for(core, cx, ReadMode::Message, is_done)
    }

    #[inline]
    fn poll_for<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
        mode: ReadMode,
        is_done: impl Fn(&Core<S>) -> bool,
    ) -> Poll<Result<Option<Step>, Error>> {
        if self.canceller.as_ref().is_some_and(Canceller::take) {
            return Poll::Ready(Err(Error::Cancelled));
        }
        if let Some(step) = self.held.take() {
            return Poll::Ready(Ok(Some(step)));
        }
        loop {
            if !core.endpoint.is_serving() {
                return self.poll_end(core, cx);
            }
            while self.start < self.end || self.decoder.is_stalled() {
                match self.decode(core, mode) {
                    Ok(Some(step)) => return Poll::Ready(Ok(Some(step))),
                    Ok(None) if is_done(core) => return Poll::Ready(Ok(None)),
                    Ok(None) => {}
                    Err(violation) => {
                        self.fail(Error::Violation(violation));
                        // The decoder may have more of the message to inflate, which is ignored
                        // now.
                        break;
                    }
                }
            }
            if !core.endpoint.is_serving() {
                continue;
            }
            // Responses to everything that was read are written together before more is awaited.
            if core.has_output() {
                if let Poll::Ready(Err(error)) = core.poll_flush(cx) {
                    // Frames that the peer sent before it stopped reading, such as a close frame,
                    // are still processed.
                    core.on_write_failed(&error);
                }
            }
            match self.poll_fill(core, cx) {
                Poll::Ready(Ok(0)) => self.end(core, Error::Eof),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => self.end(core, error.into()),
                Poll::Pending => {
                    let waited = ready!(self.poll_wait(core, cx));
                    if waited.is_retryable() {
                        return Poll::Ready(Err(waited));
                    }
                    self.fail(waited);
                }
            }
        }
    }

    /// Decodes the next frame in the buffer, and responds to a ping or a close frame. Returns the
    /// decoded message or chunk, if there is one.
    fn decode<S>(&mut self, core: &mut Core<S>, mode: ReadMode) -> Result<Option<Step>, Violation> {
        let buffer = self.buffer.as_deref_mut().expect("held while there is something to decode");
        let base = self.start;
        let fed = &mut buffer[base..self.end];
        let Core { endpoint, rules, .. } = core;
        let (n, step) = endpoint.receive_step(&mut self.decoder, fed, mode, rules, Instant::now)?;
        self.start += n;
        let Some(mut step) = step else { return Ok(None) };
        if let StepBytes::Fed(range) = &mut step.place {
            *range = range.start + base..range.end + base;
        }
        Ok(Some(step))
    }

    /// Reads the bytes that have arrived from the transport into a buffer from the thread's pool.
    /// Returns their number, which is 0 at the end of the stream.
    fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut buffer = self.buffer.take().unwrap_or_else(buffer_pool::take_read_buffer);
        let mut target = ReadBuf::new(&mut buffer);
        let polled = Pin::new(&mut core.io).poll_read(cx, &mut target);
        let n = target.filled().len();
        match polled {
            Poll::Ready(Ok(())) if n > 0 => {
                self.buffer = Some(buffer);
                self.start = 0;
                self.end = n;
                core.endpoint.on_input(n);
                if !self.decoder.has_buffer() {
                    self.decoder.lend(buffer_pool::take_message_buffer());
                }
                Poll::Ready(Ok(n))
            }
            polled => {
                buffer_pool::return_read_buffer(buffer);
                polled.map_ok(|()| 0)
            }
        }
    }

    /// Makes the current read wait for bytes, and sends keep-alive pings meanwhile. Becomes ready
    /// only when the read must end, for instance because its deadline has passed, and returns the
    /// error.
    fn poll_wait<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Error> {
        if let Some(buffer) = self.decoder.release() {
            buffer_pool::return_message_buffer(buffer);
        }
        core.endpoint.release();
        if self.canceller.as_ref().is_some_and(|canceller| canceller.poll(cx)) {
            return Poll::Ready(Error::Cancelled);
        }
        loop {
            let wait = self.deadline();
            let due = core.endpoint.deadline(&core.rules, Instant::now);
            let Some(deadline) = [wait, due].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            ready!(self.timer.poll(cx, deadline));
            let now = Instant::now();
            if wait.is_some_and(|deadline| now >= deadline) {
                return Poll::Ready(Error::TimedOut);
            }
            match core.endpoint.tick(&core.rules, now) {
                Due::Close => return Poll::Ready(Error::Eof),
                Due::Silence => return Poll::Ready(Error::PongTimeout),
                Due::Ping => {
                    if let Poll::Ready(Err(error)) = core.poll_flush(cx) {
                        core.on_write_failed(&error);
                    }
                }
                Due::Nothing => {}
            }
        }
    }

    /// Returns the deadline of the current read, if it has one. Reads the clock only when the read
    /// first has to wait.
    fn deadline(&mut self) -> Option<Instant> {
        match self.wait {
            Wait::Forever => None,
            Wait::Until(deadline) => Some(deadline),
            Wait::For(duration) => {
                let deadline = after(Instant::now(), duration);
                self.wait = Wait::Until(deadline);
                Some(deadline)
            }
        }
    }

    /// Records the error that ends the connection, and discards the bytes that are not decoded yet.
    /// The endpoint has already recorded the failure.
    #[cold]
    fn fail(&mut self, error: Error) {
        self.start = self.end;
        self.error = Some(error);
    }

    /// Ends the connection because the peer's byte stream has ended or failed.
    #[cold]
    fn end<S>(&mut self, core: &mut Core<S>, error: Error) {
        core.ensure_close_deadline();
        core.endpoint.on_read_closed();
        self.error = Some(error);
    }

    /// Writes the last frames and shuts the transport down, within
    /// [`Config::close_timeout`](crate::Config::close_timeout). If the deadline of the current read
    /// passes first, the next read continues this work.
    #[cold]
    fn poll_end<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Step>, Error>> {
        loop {
            let is_pending = match core.endpoint.io_action() {
                IoAction::Serve => unreachable!("the endpoint is closing"),
                IoAction::Flush => match core.poll_flush(cx) {
                    Poll::Pending => true,
                    Poll::Ready(flushed) => {
                        match flushed {
                            Ok(()) => core.endpoint.on_flushed(),
                            // The peer does not read, so nothing needs to be drained.
                            Err(_) => core.endpoint.give_up_step(),
                        }
                        false
                    }
                },
                IoAction::Drain { waits } => match self.poll_drain(core, cx) {
                    Poll::Pending if waits => true,
                    _ => {
                        core.endpoint.on_drained();
                        false
                    }
                },
                IoAction::ShutDown => {
                    let is_pending = Pin::new(&mut core.io).poll_shutdown(cx).is_pending();
                    if !is_pending {
                        core.endpoint.on_shut_down();
                    }
                    is_pending
                }
                IoAction::Over | IoAction::Reset => return Poll::Ready(self.ended()),
            };
            if is_pending {
                ready!(self.poll_close_deadline(core, cx))?;
                core.endpoint.give_up_step();
            }
        }
    }

    /// Reads and discards bytes from the peer until its stream ends or too many bytes have arrived.
    fn poll_drain<S: AsyncRead + Unpin>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut drained = 0;
        while drained < DRAIN_MAX {
            match ready!(self.poll_fill(core, cx)) {
                Ok(0) | Err(_) => break,
                Ok(n) => drained += n,
            }
            self.start = self.end;
        }
        Poll::Ready(())
    }

    /// Returns the result of a read after the end of the connection. It is `None` if the connection
    /// was closed regularly. Otherwise the first call returns the error that ended the connection,
    /// and later calls return [`Error::Closed`].
    fn ended(&mut self) -> Result<Option<Step>, Error> {
        if let Some(buffer) = self.buffer.take() {
            buffer_pool::return_read_buffer(buffer);
        }
        match (self.reported, self.error.take()) {
            (Reported::Failed, _) => Err(Error::Closed),
            (_, None) => {
                self.reported = Reported::Closed;
                Ok(None)
            }
            (_, Some(error)) => {
                self.reported = Reported::Failed;
                Err(error)
            }
        }
    }

    /// Waits until the timeout for closing the connection has passed. Returns an error if the
    /// deadline of the current read passes first.
    fn poll_close_deadline<S>(
        &mut self,
        core: &mut Core<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.canceller.as_ref().is_some_and(|canceller| canceller.poll(cx)) {
            return Poll::Ready(Err(Error::Cancelled));
        }
        let end = core.ensure_close_deadline();
        loop {
            let wait = self.deadline();
            ready!(self.timer.poll(cx, wait.map_or(end, |wait| wait.min(end))));
            let now = Instant::now();
            if now >= end {
                return Poll::Ready(Ok(()));
            }
            if wait.is_some_and(|deadline| now >= deadline) {
                return Poll::Ready(Err(Error::TimedOut));
            }
        }
    }
}

fn kind_of(step: &Step) -> Kind {
    match step.kind {
        StepKind::Data { is_text: true, .. } => Kind::Text,
        StepKind::Data { .. } | StepKind::Control(_) => Kind::Binary,
    }
}
