//! A connection over a named pipe, on Windows.

#![allow(clippy::unused_self)] // These are the functions of a socket.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rookery_system::socket::BorrowedSocket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::windows::named_pipe::NamedPipeServer;

/// A connection over a named pipe. It has the functions of a Unix socket, but no handle for the
/// system calls on sockets.
#[derive(Debug)]
pub struct PipeStream {
    pipe: NamedPipeServer,
    /// A byte that [`try_peek`](Self::try_peek) has read, and that the next read returns. The
    /// system cannot leave it in the pipe, because the async runtime reads in advance.
    peeked: Cell<Option<u8>>,
    /// True once the client has closed its end.
    is_ended: Cell<bool>,
}

impl PipeStream {
    pub(crate) fn new(pipe: NamedPipeServer) -> PipeStream {
        PipeStream { pipe, peeked: Cell::new(None), is_ended: Cell::new(false) }
    }

    /// Returns `None`, because a named pipe is no socket.
    pub(crate) fn handle(&self) -> Option<BorrowedSocket<'_>> {
        None
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.peeked.get().is_some() || self.is_ended.get() {
            return Poll::Ready(Ok(()));
        }
        self.pipe.poll_read_ready(cx)
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.poll_write_ready(cx)
    }

    /// Returns the next byte of input without consuming it, or `None` if the client has closed its
    /// end.
    pub(crate) fn try_peek(&self) -> io::Result<Option<u8>> {
        if self.peeked.get().is_none() && !self.is_ended.get() {
            let mut byte = [0];
            match self.pipe.try_read(&mut byte) {
                Ok(0) => self.is_ended.set(true),
                Ok(_) => self.peeked.set(Some(byte[0])),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_ended.set(true),
                Err(error) => return Err(error),
            }
        }
        Ok(self.peeked.get())
    }

    /// Returns true if the client is known to have closed its end.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.get() && self.peeked.get().is_none()
    }

    /// Fails with `Unsupported`: the system calls that look at input without consuming it need a
    /// socket. They serve TLS and the PROXY protocol, which a listener on a named pipe lacks.
    pub(crate) fn try_read_with<T>(
        &self,
        _: impl FnOnce(BorrowedSocket<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Fails with `Unsupported`, as [`try_read_with`](Self::try_read_with), so that the bytes of a
    /// file are read and then written.
    pub(crate) fn try_send_with<T>(
        &self,
        _: impl FnOnce(BorrowedSocket<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn try_write_vectored(&self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.pipe.try_write_vectored(buffers)
    }
}

impl AsyncRead for PipeStream {
    /// Reads from the pipe into `buffer`. A client that has closed its end has ended its input.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(byte) = self.peeked.take() {
            buffer.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.pipe).poll_read(cx, buffer) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_ended.set(true);
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
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.pipe.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}
