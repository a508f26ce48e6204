//! A connection over a named pipe, on Windows.

#![allow(clippy::unused_self)] // These are the functions of a socket.

use std::cell::Cell;
use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::pin::Pin;
use std::ptr;
use std::task::{Context, Poll, ready};

use rookery_system::socket::BorrowedSocket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::windows::named_pipe::NamedPipeServer;
use windows_sys::Win32::System::Pipes::PeekNamedPipe;

/// The maximum number of bytes of one write. The async runtime copies them all, whatever the client
/// reads, and keeps them until the client has read them.
const MAX_WRITE: usize = 64 << 10;

/// Returns the bytes of the first buffer that is not empty, as many as one write may have.
fn first_bytes<'a>(buffers: &'a [io::IoSlice<'_>]) -> &'a [u8] {
    let first = buffers.iter().find(|buffer| !buffer.is_empty()).map_or(&[][..], |buffer| buffer);
    &first[..first.len().min(MAX_WRITE)]
}

/// A connection over a named pipe. It has the functions of a Unix socket, but no handle for the
/// system calls on sockets.
#[derive(Debug)]
pub(crate) struct PipeStream {
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
                Ok(0) if self.has_client() => return Err(io::ErrorKind::WouldBlock.into()),
                Ok(0) => self.is_ended.set(true),
                Ok(_) => self.peeked.set(Some(byte[0])),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_ended.set(true),
                Err(error) => return Err(error),
            }
        }
        Ok(self.peeked.get())
    }

    /// Returns true if the client has not closed its end. Makes a system call. A read of no bytes
    /// does not tell, because a client can write none.
    fn has_client(&self) -> bool {
        let pipe = self.pipe.as_raw_handle();
        let none = ptr::null_mut();
        // SAFETY: the handle is open, and the null pointers mean that nothing is to be stored.
        unsafe { PeekNamedPipe(pipe, ptr::null_mut(), 0, none, none, none) != 0 }
    }

    /// Disconnects the client and discards the bytes that it has not read. Otherwise they would
    /// stay in memory until the client closes its end, even after this value is dropped.
    pub(crate) fn disconnect(&self) {
        // If the call fails, the client has already gone.
        let _ = self.pipe.disconnect();
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
        self.pipe.try_write(first_bytes(buffers))
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
        let before = buffer.filled().len();
        match ready!(Pin::new(&mut self.pipe).poll_read(cx, buffer)) {
            Ok(()) if buffer.filled().len() > before || buffer.remaining() == 0 => {}
            Ok(()) if self.has_client() => {
                // The client has written no bytes. Other connections are served before the next
                // read.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Ok(()) => self.is_ended.set(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_ended.set(true),
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PipeStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(MAX_WRITE)];
        Pin::new(&mut self.pipe).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(cx, first_bytes(buffers))
    }

    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::future::poll_fn;
    use std::io::{IoSlice, Read as _, Write as _};

    use tokio::net::windows::named_pipe::ServerOptions;

    use super::*;

    /// Runs a test with both ends of a pipe, in an async runtime.
    fn with_pipe(name: &str, test: impl AsyncFnOnce(PipeStream, File)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let name = format!(r"\\.\pipe\rookery-{name}-{}", std::process::id());
            let server = ServerOptions::new().create(&name).unwrap();
            let client = File::options().read(true).write(true).open(&name).unwrap();
            server.connect().await.unwrap();
            test(PipeStream::new(server), client).await;
        });
    }

    #[test]
    fn a_write_takes_a_limited_part_of_what_is_given() {
        with_pipe("limited", async |mut stream, mut client| {
            let bytes = vec![b'x'; 3_000_000];
            let buffers = [IoSlice::new(&[]), IoSlice::new(&bytes), IoSlice::new(&bytes)];
            poll_fn(|cx| stream.poll_write_ready(cx)).await.unwrap();
            assert_eq!(stream.try_write_vectored(&buffers).unwrap(), MAX_WRITE);
            assert_eq!(stream.try_write_vectored(&[IoSlice::new(b"ab")]).map_or(0, |_| 1), 0);
            let mut room = vec![0; MAX_WRITE];
            client.read_exact(&mut room).unwrap();
            let write = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, &bytes)).await;
            assert_eq!(write.unwrap(), MAX_WRITE);
            // The client gets nothing of what it has not read, and does not wait for the end.
            stream.disconnect();
            assert!(client.read_exact(&mut room).is_err());
        });
    }

    #[test]
    fn a_client_that_writes_no_bytes_has_not_ended() {
        with_pipe("zero", async |mut stream, mut client| {
            assert_eq!(client.write(&[]).unwrap(), 0);
            client.write_all(b"a").unwrap();
            let mut room = [0; 8];
            let mut buffer = ReadBuf::new(&mut room);
            poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buffer)).await.unwrap();
            assert_eq!(buffer.filled(), b"a");
            drop(client);
            let mut buffer = ReadBuf::new(&mut room);
            poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buffer)).await.unwrap();
            assert!(buffer.filled().is_empty() && stream.is_ended());
        });
    }
}
