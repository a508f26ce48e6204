//! WebSocket connections over any transport that implements `AsyncRead` and `AsyncWrite`.

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
pub use message::{Chunk, Kind, Message, OwnedMessage};
pub use message_writer::MessageWriter;
pub use open::{ClientConfig, Parts, accept, client, connect};
#[cfg(feature = "tls")]
pub(crate) use open::{connect_tcp, establish, host_of, split_address};
pub use outgoing::Outgoing;
pub(crate) use split::PollSender;
pub use split::{Reader, Sender};

use crate::connection::core::Core;
use crate::connection::inbound::{Inbound, Wait};
use crate::endpoint::Statistics;
use crate::protocol::{CloseCode, Ending, ReadMode};

/// A WebSocket connection, as a client or as a server.
///
/// A read also responds to pings and close frames, sends keep-alive pings, and writes queued output
/// before it waits. If a connection is not read, none of this happens.
///
/// # Cancel safety
/// All methods are cancel safe. If the future of a read is dropped, nothing is lost, and the next
/// read continues. If the future of a `send` is dropped while it waits for capacity, nothing was
/// sent. No method sends half a message.
///
/// # Allocation
/// Frames and messages allocate nothing at steady state, with or without a deadline or
/// [`Canceller`]. Buffers belong to the thread, and a connection borrows one while a message in it
/// is incomplete. The first deadline or keep-alive ping creates the connection's timer.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rookery_websocket::Error> {
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

/// The writing side of a WebSocket connection, for sending while a received message is borrowed.
#[derive(Debug)]
pub struct Writer<'a, S> {
    core: &'a mut Core<S>,
    has_more: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads the next whole message. Returns `None` once the closing handshake is complete. After
    /// [`Connection::read_chunk`], returns the rest of the message, which is text only if the rest
    /// is UTF-8 by itself.
    ///
    /// # Errors
    /// [`Error::Eof`], [`Error::Io`], [`Error::Violation`] or [`Error::PongTimeout`] when the
    /// connection ended without a closing handshake; [`Error::Closed`] for each further read; and
    /// [`Error::Cancelled`] after [`Canceller::cancel`].
    pub async fn read(&mut self) -> Result<Option<Message<'_>>, Error> {
        self.read_with(Wait::Forever).await
    }

    /// Reads the next whole message as [`Connection::read`] does, but waits only until `deadline`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] at `deadline`, after which the read can be repeated; otherwise the
    /// errors of [`Connection::read`].
    pub async fn read_before(&mut self, deadline: Instant) -> Result<Option<Message<'_>>, Error> {
        self.read_with(Wait::Until(deadline)).await
    }

    /// Reads the next whole message as [`Connection::read`] does, but waits for at most `timeout`.
    /// A message that has already arrived is returned even if `timeout` is zero.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `timeout`, after which the read can be repeated; otherwise the
    /// errors of [`Connection::read`].
    pub async fn read_timeout(&mut self, timeout: Duration) -> Result<Option<Message<'_>>, Error> {
        self.read_with(Wait::For(timeout)).await
    }

    /// Reads the next whole message. Returns it with a [`Writer`], so that the message can be sent
    /// back without a copy.
    ///
    /// # Errors
    /// The errors of [`Connection::read`].
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

    /// Reads the next chunk of a message as it arrives, without assembling the whole message.
    /// [`DecoderLimits`](crate::protocol::DecoderLimits) still limit the whole message.
    ///
    /// # Errors
    /// The errors of [`Connection::read`].
    pub async fn read_chunk(&mut self) -> Result<Option<Chunk<'_>>, Error> {
        self.inbound.set_wait(Wait::Forever);
        let step =
            poll_fn(|cx| self.inbound.poll_step(&mut self.core, cx, ReadMode::Chunks)).await?;
        Ok(step.map(|step| self.inbound.chunk(&step)))
    }

    /// Sends a message: waits until the send queue is below its high-water mark, queues the
    /// message, and writes what the transport accepts at once. The next read, send or flush writes
    /// the remaining bytes. The result is never [`SendStatus::Dropped`].
    ///
    /// # Errors
    /// [`Error::Closed`] once a close frame was sent or received, [`Error::Abandoned`] after an
    /// unfinished [`MessageWriter`], and [`Error::Io`] when the transport fails.
    pub async fn send<'m>(
        &mut self,
        message: impl Into<Outgoing<'m>>,
    ) -> Result<SendStatus, Error> {
        let message = message.into().frame();
        poll_fn(|cx| self.core.poll_send(cx, &message)).await
    }

    /// Queues a message without writing it. The next read, send or flush writes it together with
    /// everything else in the send queue. The result is [`SendStatus::Dropped`] if the queue would
    /// exceed [`Config::queue_max`].
    ///
    /// # Errors
    /// The errors of [`Connection::send`].
    pub fn queue<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<SendStatus, Error> {
        self.core.queue(&message.into().frame())
    }

    /// Begins a message that is written in chunks. Each chunk is sent as one frame.
    ///
    /// # Errors
    /// [`Error::Abandoned`] if an earlier [`MessageWriter`] was not finished.
    pub fn write(&mut self, kind: Kind) -> Result<MessageWriter<'_, S>, Error> {
        MessageWriter::begin(&mut self.core, kind)
    }

    /// Writes everything in the send queue to the transport.
    ///
    /// # Errors
    /// [`Error::Io`] when the transport fails.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_flush_noting_failure(cx)).await
    }

    /// Waits until the send queue is below its high-water mark.
    ///
    /// # Errors
    /// The errors of [`Connection::send`].
    pub async fn drained(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_ready(cx)).await
    }

    /// Sends a ping, waits for its pong, and returns the round-trip time.
    ///
    /// # Errors
    /// [`Error::MessageFirst`] if a message arrives before the pong. The next read returns that
    /// message, and [`Statistics::round_trip`] still measures the pong. The two halves of a
    /// [`Connection::split`] do not have this limitation.
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

    /// Starts the closing handshake and waits for the peer's close frame, for at most
    /// [`Config::close_timeout`]. Messages that arrive meanwhile are discarded.
    ///
    /// # Cancel safety
    /// If the future is dropped, the messages that it has discarded are lost. If it has discarded a
    /// part of a message, the next read skips this message and returns the next one.
    ///
    /// # Errors
    /// The errors of [`Connection::read`]. After [`Error::Cancelled`], `close` can be called again.
    pub async fn close(&mut self, code: CloseCode, reason: &str) -> Result<Ending, Error> {
        self.core.start_close(Some(code), reason);
        self.inbound.set_wait(Wait::Forever);
        while poll_fn(|cx| self.inbound.poll_step(&mut self.core, cx, ReadMode::Discard))
            .await?
            .is_some()
        {}
        Ok(self.core.endpoint.ending())
    }

    /// Ends the connection without a closing handshake. Queued output is lost unless the transport
    /// accepts it at once.
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
    /// Splits the connection into a [`Reader`] and a [`Sender`], which different tasks can use at
    /// the same time. The sender can be cloned for several tasks.
    ///
    /// # Allocation
    /// Allocates twice. After that, each operation takes a lock that is rarely contended.
    pub fn split(self) -> (Reader<S>, Sender<S>) {
        split::split(self.core, self.inbound)
    }

    /// Returns a handle with which another task can cancel a read of this connection.
    pub fn canceller(&mut self) -> Canceller {
        self.inbound.canceller()
    }

    /// Returns the number of encoded bytes in the send queue, which the transport has not accepted
    /// yet.
    pub fn pending(&self) -> usize {
        self.core.pending()
    }

    /// Returns the counters of this connection's messages, frames and bytes.
    pub fn statistics(&self) -> Statistics {
        *self.core.statistics()
    }

    /// Returns how the connection ended. While it is open, returns how it would end if it broke
    /// now.
    pub fn ending(&self) -> Ending {
        self.core.endpoint.ending()
    }

    /// Returns the reason in the peer's close frame. It is empty if there was no close frame.
    pub fn close_reason(&self) -> &str {
        self.core.endpoint.close_reason()
    }

    /// Returns the connection's transport, such as a socket.
    pub fn transport(&self) -> &S {
        &self.core.io
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Writer<'_, S> {
    /// Sends a message as [`Connection::send`] does.
    ///
    /// # Errors
    /// The errors of [`Connection::send`].
    pub async fn send<'m>(
        &mut self,
        message: impl Into<Outgoing<'m>>,
    ) -> Result<SendStatus, Error> {
        let message = message.into().frame();
        poll_fn(|cx| self.core.poll_send(cx, &message)).await
    }

    /// Queues a message as [`Connection::queue`] does.
    ///
    /// # Errors
    /// The errors of [`Connection::queue`].
    pub fn queue<'m>(&mut self, message: impl Into<Outgoing<'m>>) -> Result<SendStatus, Error> {
        self.core.queue(&message.into().frame())
    }

    /// Sends the response to a received message. While the buffer contains more received messages,
    /// only queues the response, so that it is written together with the next ones. Waits if too
    /// many bytes are queued, and never drops the response.
    ///
    /// Use this method only in a loop that waits for nothing but the connection, because only the
    /// next read, send or flush writes a queued response.
    ///
    /// # Errors
    /// The errors of [`Connection::send`].
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
