//! A connected Unix socket that avoids unnecessary wake-ups: the async runtime watches whether the
//! socket is writable only after a write had to wait.
//!
//! The system reports a Unix socket as writable each time that the peer has read, even if the
//! buffer was not full. (It reports a TCP socket only after a write was refused.) Without this
//! module, each request from a supervisor to a worker would wake a thread on each side for nothing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connected Unix socket. The async runtime does not watch whether the socket is writable until a
/// write finds it full. This avoids a wake-up each time that the peer has read.
#[derive(Debug)]
pub(crate) struct UnixStream {
    socket: AsyncFd<StdUnixStream>,
    /// A copy of the socket's descriptor, by which the async runtime watches whether the socket is
    /// writable. It is made when a write finds the socket full for the first time.
    writable: OnceLock<AsyncFd<OwnedFd>>,
}

impl UnixStream {
    /// Registers a connected, non-blocking Unix socket with the runtime.
    ///
    /// # Errors
    /// Fails if the runtime cannot register the socket.
    pub(crate) fn new(socket: StdUnixStream) -> io::Result<UnixStream> {
        // SAFETY: the socket's descriptor stays open and unchanged as long as the socket exists.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(UnixStream { socket, writable: OnceLock::new() })
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.socket.poll_read_ready(cx))?;
        guard.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Waits until a write to the socket may succeed.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writable) = self.writable.get() else { return Poll::Ready(Ok(())) };
        let mut guard = ready!(writable.poll_write_ready(cx))?;
        guard.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Returns the descriptor of the socket, for system calls.
    #[expect(clippy::unnecessary_wraps, reason = "a named pipe has none")]
    pub(crate) fn handle(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    /// Reads from the socket by calling `read`. If `read` returns `WouldBlock`, the socket counts
    /// as empty until new input arrives.
    pub(crate) fn try_read_with<T>(
        &self,
        read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.socket.try_io(Interest::READABLE, |socket| read(socket.as_fd()))
    }

    /// Writes to the socket by calling `write` with its descriptor, as
    /// [`try_write_with`](Self::try_write_with).
    pub(crate) fn try_send_with<T>(
        &self,
        write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.try_write_with(|| write(self.as_fd()))
    }

    /// Writes to the socket by calling `write`. If `write` returns `WouldBlock`, the socket counts
    /// as full, and the async runtime watches from then on whether it is writable.
    fn try_write_with<T>(&self, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if let Some(writable) = self.writable.get() {
            return writable.try_io(Interest::WRITABLE, |_| write());
        }
        let written = write();
        if written.as_ref().is_err_and(is_would_block) {
            let same = OwnedFd::from(self.socket.get_ref().try_clone()?);
            // SAFETY: the owned descriptor stays open and unchanged as long as its owner exists.
            let writable = unsafe { AsyncFd::register_with_interest(same, Interest::WRITABLE) }?;
            // The value cannot be set already, because only this thread sets it.
            let _ = self.writable.set(writable);
        }
        written
    }

    pub(crate) fn try_write_vectored(&self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_with(|| io::Write::write_vectored(&mut self.socket.get_ref(), buffers))
    }

    fn poll_write_with<T>(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            match self.try_write_with(&mut write) {
                Err(error) if is_would_block(&error) => ready!(self.poll_write_ready(cx))?,
                written => return Poll::Ready(written),
            }
        }
    }
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

impl AsRawFd for UnixStream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for UnixStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

impl AsyncRead for UnixStream {
    /// Reads from the socket into `buffer`. After a read that does not fill `buffer`, the socket
    /// counts as empty until new input arrives, which saves a system call.
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            // SAFETY: the system only writes to the memory.
            let unfilled = unsafe { buffer.unfilled_mut() };
            let len = unfilled.len();
            let n = match recv(self.socket.get_ref(), unfilled, RecvFlags::DONTWAIT) {
                Ok((_, n)) => n,
                Err(Errno::WOULDBLOCK) => {
                    guard.clear_ready();
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Poll::Ready(Err(error.into())),
            };
            // The runtime reports input that arrives later. The end of the input is reported
            // permanently, so it needs no call.
            if 0 < n && n < len {
                guard.clear_ready();
            }
            // SAFETY: the system has written `n` bytes.
            unsafe { buffer.assume_init(n) };
            buffer.advance(n);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, || io::Write::write(&mut self.socket.get_ref(), bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, || io::Write::write_vectored(&mut self.socket.get_ref(), buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.get_ref().shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (a, b) = StdUnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (UnixStream::new(a).unwrap(), UnixStream::new(b).unwrap())
    }

    #[tokio::test]
    async fn transfers_all_bytes_whether_or_not_writes_have_to_wait() {
        let (mut a, mut b) = pair();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let expected = bytes.clone();
        let writing = tokio::spawn(async move {
            a.write_all(&bytes[..10]).await.unwrap();
            assert!(a.writable.get().is_none(), "no write had to wait");
            a.write_all(&bytes[10..]).await.unwrap();
            assert!(a.writable.get().is_some());
            a.shutdown().await.unwrap();
            // The socket stays open after the shutdown, and can still receive.
            let mut last = [0; 4];
            a.read_exact(&mut last).await.unwrap();
            (last, a.read(&mut [0; 4]).await.unwrap())
        });
        let mut read = Vec::new();
        b.read_to_end(&mut read).await.unwrap();
        assert!(read == expected);
        b.write_all(b"last").await.unwrap();
        drop(b);
        assert_eq!(writing.await.unwrap(), (*b"last", 0));
    }

    #[tokio::test]
    async fn a_waiting_writer_is_notified_of_the_disconnect() {
        let (mut a, b) = pair();
        let writing = tokio::spawn(async move {
            let chunk = vec![0; 1 << 20];
            loop {
                if let Err(error) = a.write_all(&chunk).await {
                    return error.kind();
                }
            }
        });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        drop(b);
        assert!(matches!(
            writing.await.unwrap(),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
        ));
    }
}
