//! A connection over a named pipe, on Windows.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rookery_system::socket::BorrowedSocket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::windows::named_pipe::NamedPipeServer;

/// A connection over a named pipe. It has the functions of a Unix socket, but no handle for the
/// system calls on sockets.
#[derive(Debug)]
pub struct PipeStream(NamedPipeServer);

impl PipeStream {
    pub(crate) fn new(pipe: NamedPipeServer) -> PipeStream {
        PipeStream(pipe)
    }

    /// Returns `None`, because a named pipe is no socket.
    #[expect(clippy::unused_self, reason = "a Unix socket has a handle")]
    pub(crate) fn handle(&self) -> Option<BorrowedSocket<'_>> {
        None
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx)
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx)
    }

    /// Fails with `Unsupported`: the system calls that look at input without consuming it need a
    /// socket. They serve TLS and the PROXY protocol, which a listener on a named pipe lacks.
    #[expect(clippy::unused_self, reason = "a Unix socket is read")]
    pub(crate) fn try_read_with<T>(
        &self,
        _: impl FnOnce(BorrowedSocket<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Fails with `Unsupported`, as [`try_read_with`](Self::try_read_with), so that the bytes of a
    /// file are read and then written.
    #[expect(clippy::unused_self, reason = "a Unix socket is written")]
    pub(crate) fn try_send_with<T>(
        &self,
        _: impl FnOnce(BorrowedSocket<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn try_write_vectored(&self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(buffers)
    }
}

impl AsyncRead for PipeStream {
    /// Reads from the pipe into `buffer`. A client that has closed its end has ended its input.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buffer) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl AsyncWrite for PipeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
