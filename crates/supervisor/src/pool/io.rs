//! A connection to a worker, as hyper's client reads and writes it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use rookery_server::UnixStream;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct Io(pub(super) UnixStream);

impl Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: the cursor's unfilled part is only written to, by the read, which initialises what it counts.
        let mut unfilled = ReadBuf::uninit(unsafe { buffer.as_mut() });
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut unfilled))?;
        let n = unfilled.filled().len();
        // SAFETY: `n` bytes of the unfilled part were initialised by the read.
        unsafe { buffer.advance(n) };
        Poll::Ready(Ok(()))
    }
}

impl Write for Io {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
