//! A connection over any `AsyncRead + AsyncWrite`.

mod buffer_pool;
mod cancel;
mod config;
mod core;
mod error;
mod happy_eyeballs;
mod inbound;
mod mask_keys;
mod message;
mod message_writer;
mod open;
mod outgoing;
mod split;
mod timer;

use std::fmt;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

pub use cancel::Canceller;
pub use config::{Config, KeepAlive};
pub use core::SendStatus;
pub use error::Error;
pub use happy_eyeballs::connect_any;
pub use message::{Chunk, Kind, Message};
pub use message_writer::MessageWriter;
pub use open::{ClientConfig, Parts, accept, client, connect};
pub use outgoing::{Outgoing, Prepared};
pub use split::{Reader, Sender};

use crate::connection::core::Core;
use crate::connection::inbound::{Inbound, Wait};
use crate::endpoint::Statistics;
use crate::protocol::{CloseCode, Ending, ReadMode};

/// A WebSocket, of either side.
///
/// Reading answers pings and close frames, sends the keep-alive's pings, and writes what is queued before it waits: a
/// connection that nobody reads is not kept alive.
///
/// # Cancel safety
/// Every method. A read that is dropped has lost nothing, and the next goes on where it was. A `send` that is dropped while it
/// waited for room has sent nothing; it never sends half a message.
///
/// # Allocation
/// None for a frame or message at steady state, with or without a deadline or [`Canceller`]. Buffers are lent by the thread
/// while something in them is half read or half written. The first deadline or keep-alive makes the connection's timer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), rookery_websocket::Error> {
/// use rookery_websocket::{Config, Parts};
/// let (here, there) = tokio::io::duplex(1024);
/// let mut client = Parts::client(here).connection(Config::default());
/// let mut server = Parts::server(there).connection(Config::default());
/// client.send("hello").await?;
/// let (message, mut writer) = server.receive().await?.expect("not closed yet");
/// writer.send(message).await?;
/// assert_eq!(client.read().await?.and_then(|message| message.as_text()), Some("hello"));
/// # Ok(()) }
/// ```
pub struct Connection<S> {
    core: Core<S>,
    inbound: Inbound,
}

/// The writing side, while a message of the reading side is borrowed.
#[derive(Debug)]
pub struct Writer<'a, S> {
    core: &'a mut Core<S>,
    has_more: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The next whole message; nothing when the connection was closed as it should. After chunks were read, the rest of their
    /// message, which is text only if it does not begin within a character.
    ///
    /// # Errors
    /// When the connection ended otherwise, or a [`Canceller`] was used.
    pub async fn read(&mut self) -> Result<Option<Message<'_>>, Error> {
        self.read_with(Wait::Forever).await
    }

    /// As [`Connection::read`], until `deadline`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which the read can be repeated.
    pub async fn read_before(&mut self, deadline: Instant) -> Result<Option<Message<'_>>, Error> {
        self.read_with(Wait::Until(deadline)).await
    }

    /// As [`Connection::read`], for `timeout` from when it first has to wait. A message that has
    /// already arrived is returned even if `timeout` is zero.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which the read can be repeated.
    pub async fn read_timeout(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, Error> {
        self.read_with(Wait::For(timeout)).await
    }

    /// The next whole message, and the writing side beside it: it can be answered without being copied.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn receive(&mut self) -> Result<Option<(Message<'_>, Writer<'_, S>)>, Error> {
        if let Some(frame) = self.inbound.next_buffered(&mut self.core) {
            let has_more = self.inbound.has_more();
            let writer = Writer { core: &mut self.core, has_more };
            return Ok(Some((self.inbound.buffered_message(frame), writer)));
        }
        self.inbound.set_wait(Wait::Forever);
        let step =
            poll_fn(|cx| self.inbound.poll_step(&mut self.core, cx, ReadMode::Message)).await?;
        let has_more = self.inbound.has_more();
        Ok(step
            .map(|step| (self.inbound.message(&step), Writer { core: &mut self.core, has_more })))
    }

    /// The next chunk of a message, as it comes: nothing is put together, and [`crate::protocol::DecoderLimits`] still bound the
    /// whole.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub async fn read_chunk(&mut self) -> Result<Option<Chunk<'_>>, Error> {
        self.inbound.set_wait(Wait::Forever);
        let step =
            poll_fn(|cx| self.inbound.poll_step(&mut self.core, cx, ReadMode::Chunks)).await?;
        Ok(step.map(|step| self.inbound.chunk(&step)))
    }

    /// Waits for room, takes the message and writes what the transport takes of it. The rest leaves with the next read, send or
    /// flush. The message is never [`SendStatus::Dropped`].
    ///
    /// # Errors
    /// [`Error::Closed`] once a close frame was sent or received; a failed transport.
    pub async fn send<'m>(
        &mut self,
        message: impl Into<Outgoing<'m>>,
    ) -> Result<SendStatus, Error> {
        let message = message.into().frame();
        poll_fn(|cx| self.core.poll_send(cx, &message)).await
    }

    /// Takes the message without writing: it leaves with the next read, send or flush, together with what is queued beside it.
    /// When [`Config::queue_max`] has no room for it, the message is [`SendStatus::Dropped`].
    ///
    /// # Errors
    /// [`Error::Closed`] once a close frame was sent or received; a failed transport.
    pub fn queue<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<SendStatus, Error> {
        self.core.queue(&message.into().frame())
    }

    /// Begins a message that is written in chunks.
    ///
    /// # Errors
    /// [`Error::Abandoned`] if one was begun before and not finished.
    pub fn write(&mut self, kind: Kind) -> Result<MessageWriter<'_, S>, Error> {
        MessageWriter::begin(&mut self.core, kind)
    }

    /// Writes everything that is queued.
    ///
    /// # Errors
    /// When the transport fails.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_flush_noting_failure(cx)).await
    }

    /// Waits until the queue is below its high-water mark.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn drained(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_ready(cx)).await
    }

    /// Sends a ping and waits for its pong: the round trip.
    ///
    /// # Errors
    /// [`Error::MessageFirst`] if a message comes before it. The next read gets it; the pong is still counted in
    /// [`Statistics::round_trip`]. Two halves of a [`Connection::split`] do not have this limit.
    pub async fn ping(&mut self) -> Result<Duration, Error> {
        self.inbound.set_wait(Wait::Forever);
        let number = self.core.queue_ping(Instant::now())?;
        poll_fn(|cx| {
            let polled = self
                .inbound
                .poll_until(&mut self.core, cx, |core| core.endpoint.is_answered(number));
            match polled {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) if self.core.endpoint.is_answered(number) => {
                    Poll::Ready(Ok(self.core.statistics().round_trip.unwrap_or_default()))
                }
                Poll::Ready(Ok(None)) => Poll::Ready(Err(Error::Closed)),
                Poll::Ready(Ok(Some(step))) => {
                    self.inbound.hold(step);
                    Poll::Ready(Err(Error::MessageFirst))
                }
            }
        })
        .await
    }

    /// Sends a close frame and waits, for [`Config::close_timeout`] at most, for the peer's. Messages that still come are thrown
    /// away.
    ///
    /// # Cancel safety
    /// Dropped, it has thrown whole messages away, or begun to; the next read gives the first that was not touched.
    ///
    /// # Errors
    /// When the connection ended otherwise; [`Error::Cancelled`], after which it can be called again.
    pub async fn close(&mut self, code: CloseCode, reason: &str) -> Result<Ending, Error> {
        self.core.start_close(Some(code), reason);
        self.inbound.set_wait(Wait::Forever);
        while poll_fn(|cx| self.inbound.poll_step(&mut self.core, cx, ReadMode::Discard))
            .await?
            .is_some()
        {}
        Ok(self.core.endpoint.ending())
    }

    /// Ends the connection without a handshake. What the transport does not take at once is lost.
    pub async fn close_now(mut self) {
        let _ = poll_fn(|cx| {
            let _ = self.core.poll_flush(cx);
            std::pin::Pin::new(&mut self.core.io).poll_shutdown(cx)
        })
        .await;
    }

    async fn read_with(&mut self, wait: Wait) -> Result<Option<Message<'_>>, Error> {
        if let Some(frame) = self.inbound.next_buffered(&mut self.core) {
            return Ok(Some(self.inbound.buffered_message(frame)));
        }
        self.inbound.set_wait(wait);
        let step =
            poll_fn(|cx| self.inbound.poll_step(&mut self.core, cx, ReadMode::Message)).await?;
        Ok(step.map(|step| self.inbound.message(&step)))
    }
}

impl<S> Connection<S> {
    /// A half that reads, and one that sends, for as many tasks as it is cloned to.
    ///
    /// # Allocation
    /// Two, here. Each operation takes an uncontended lock.
    pub fn split(self) -> (Reader<S>, Sender<S>) {
        split::split(self.core, self.inbound)
    }

    /// What cancels a read of this connection.
    pub fn canceller(&mut self) -> Canceller {
        self.inbound.canceller()
    }

    /// Bytes encoded that the transport has not taken.
    pub fn pending(&self) -> usize {
        self.core.pending()
    }

    /// What went over the connection.
    pub fn statistics(&self) -> Statistics {
        *self.core.statistics()
    }

    /// How the connection ended, or would if it broke now.
    pub fn ending(&self) -> Ending {
        self.core.endpoint.ending()
    }

    /// What the peer's close frame says for a person; empty without one.
    pub fn close_reason(&self) -> &str {
        self.core.endpoint.close_reason()
    }

    /// The transport.
    pub fn transport(&self) -> &S {
        &self.core.io
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<'_, S> {
    /// As [`Connection::send`].
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn send<'m>(
        &mut self,
        message: impl Into<Outgoing<'m>>,
    ) -> Result<SendStatus, Error> {
        let message = message.into().frame();
        poll_fn(|cx| self.core.poll_send(cx, &message)).await
    }

    /// As [`Connection::queue`].
    ///
    /// # Errors
    /// As [`Connection::queue`].
    pub fn queue<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<SendStatus, Error> {
        self.core.queue(&message.into().frame())
    }

    /// Sends a reply: at once if nothing else was read, else together with the replies to what was. For a handler that reads
    /// on without waiting for anything but the connection. Like [`Connection::send`], it waits for
    /// room and never drops the message.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn reply<'m>(
        &mut self,
        message: impl Into<Outgoing<'m>>,
    ) -> Result<SendStatus, Error> {
        let message = message.into().frame();
        if self.has_more
            && !self.core.is_above_high_water()
            && self.core.has_room(message.payload.len())
        {
            return self.core.queue(&message);
        }
        poll_fn(|cx| self.core.poll_send(cx, &message)).await
    }
}

impl<S: fmt::Debug> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("core", &self.core)
            .field("inbound", &self.inbound)
            .finish()
    }
}
