//! A WebSocket as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::{Connection, Outgoing, PollSender, Reader};
use crate::protocol::{ReadMode, Step};

/// A WebSocket connection as a stream of bytes, for protocols that need `AsyncRead` and
/// `AsyncWrite`, such as a tunnel.
///
/// Each write is sent as a binary message of at most 64 KiB. Reads return the bytes of all messages
/// as they arrive, without their boundaries. [`shutdown`](tokio::io::AsyncWriteExt::shutdown) sends
/// a close frame; what the peer sends before its own close frame can still be read. A read returns
/// the end of the stream only after a complete closing handshake. If the connection breaks, the
/// read fails, so that the bytes before it are not taken for everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use rookery_websocket::{ByteStream, Config, Parts};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let (here, there) = tokio::io::duplex(1024);
/// let mut client = ByteStream::from(Parts::client(here).connection(Config::default()));
/// let mut server = ByteStream::from(Parts::server(there).connection(Config::default()));
/// client.write_all(b"hello").await?;
/// let mut bytes = [0; 5];
/// server.read_exact(&mut bytes).await?;
/// assert_eq!(&bytes, b"hello");
/// # Ok(()) }
/// ```
///
/// # Allocation
/// Conversion from a [`Connection`] allocates twice, because the stream can be read and written by
/// different tasks (`tokio::io::split`). Reads and writes allocate nothing at steady state.
#[derive(Debug)]
pub struct ByteStream<S> {
    reader: Reader<S>,
    sender: PollSender<S>,
    /// The chunk that is being read, with the number of its bytes that were returned.
    chunk: Option<(Step, usize)>,
}

/// The maximum number of bytes of a message, so that it is within the limits of most peers.
const MESSAGE_MAX: usize = 64 << 10;

impl<S> From<Connection<S>> for ByteStream<S> {
    fn from(connection: Connection<S>) -> ByteStream<S> {
        let (reader, sender) = connection.split();
        ByteStream { reader, sender: sender.into(), chunk: None }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ByteStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let ByteStream { reader, chunk, .. } = &mut *self;
        while target.remaining() > 0 {
            if let Some((step, returned)) = chunk {
                let bytes = &reader.chunk(step).bytes[*returned..];
                let count = bytes.len().min(target.remaining());
                target.put_slice(&bytes[..count]);
                *returned += count;
                if count == bytes.len() {
                    *chunk = None;
                }
                if count > 0 {
                    break;
                }
            }
            match ready!(reader.poll_next(cx, ReadMode::Chunks))? {
                Some(step) => *chunk = Some((step, 0)),
                None => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ByteStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(MESSAGE_MAX)];
        if !bytes.is_empty() {
            let message = Outgoing::Binary(bytes).frame();
            let _ = ready!(self.sender.poll(cx, |core, cx| core.poll_send(cx, &message)))?;
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.poll_flush(cx).map_err(io::Error::from)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.poll_close(cx).map_err(io::Error::from)
    }
}
