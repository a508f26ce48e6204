//! A WebSocket as a `Stream` and a `Sink` of messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::{Connection, Error, OwnedMessage, PollSender, Reader};
use crate::protocol::ReadMode;

/// A WebSocket connection as a [`Stream`] and a [`Sink`] of messages, for code that needs these
/// traits. [`Connection::read`] and [`Connection::send`] cost less, because they copy no message.
///
/// The stream ends after the closing handshake, or after the error that ended the connection.
/// Closing the sink sends a close frame; the stream then still has to be read to its end.
///
/// # Allocation
/// Conversion from a [`Connection`] allocates twice, because the stream and the sink can be used by
/// different tasks (`StreamExt::split`). Each received message allocates once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rookery_websocket::Error> {
/// use futures_util::{SinkExt, StreamExt};
/// use rookery_websocket::{Config, MessageStream, Parts};
///
/// let (here, there) = tokio::io::duplex(1024);
/// let mut client = MessageStream::from(Parts::client(here).connection(Config::default()));
/// let mut server = MessageStream::from(Parts::server(there).connection(Config::default()));
/// client.send("hello".into()).await?;
/// let message = server.next().await.expect("not closed yet")?;
/// assert_eq!(message, "hello".into());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MessageStream<S> {
    reader: Reader<S>,
    sink: PollSender<S>,
}

impl<S> From<Connection<S>> for MessageStream<S> {
    fn from(connection: Connection<S>) -> MessageStream<S> {
        let (reader, sender) = connection.split();
        MessageStream { reader, sink: sender.into() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for MessageStream<S> {
    type Item = Result<OwnedMessage, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.reader).poll_next(cx)
    }
}

/// The stream ends after the closing handshake, or after the error that ended the connection.
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for Reader<S> {
    type Item = Result<OwnedMessage, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match ready!(Reader::poll_next(&mut self, cx, ReadMode::Message)) {
            Ok(Some(step)) => Some(Ok(self.message(&step).into())),
            // A read after the end.
            Ok(None) | Err(Error::Closed) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sink<OwnedMessage> for MessageStream<S> {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.sink.poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: OwnedMessage) -> Result<(), Error> {
        self.sink.queue_ready(&(&message).into())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.sink.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.sink.poll_close(cx)
    }
}
