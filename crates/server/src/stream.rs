//! A connection's socket, TCP or Unix, as hyper and the WebSocket driver use it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::connection::Connection;

/// A socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(socket) => socket.poll_read_ready(cx),
            Socket::Unix(socket) => socket.poll_read_ready(cx),
        }
    }

    /// Reads; a read that does not fill `buffer` leaves the socket known to be empty, without asking again.
    pub(crate) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(socket) => AsyncRead::poll_read(Pin::new(socket), cx, buffer),
            Socket::Unix(socket) => AsyncRead::poll_read(Pin::new(socket), cx, buffer),
        }
    }

    /// As [`poll_read_buf`](Self::poll_read_buf), into initialised memory.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.poll_read_buf(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(socket) => AsyncWrite::poll_write_vectored(Pin::new(socket), cx, buffers),
            Socket::Unix(socket) => AsyncWrite::poll_write_vectored(Pin::new(socket), cx, buffers),
        }
    }

    pub(crate) fn try_write_vectored(&self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => socket.try_write_vectored(buffers),
            Socket::Unix(socket) => socket.try_write_vectored(buffers),
        }
    }

    /// Looks at the next byte without taking it: 0 after a FIN.
    pub(crate) fn try_peek(&self) -> io::Result<usize> {
        let fd = self.fd();
        let peek = || {
            let mut byte = 0u8;
            // SAFETY: `fd` is open, `byte` has room for one byte, and MSG_DONTWAIT keeps the call from blocking.
            let n = unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
            usize::try_from(n).map_err(|_| io::Error::last_os_error())
        };
        match self {
            Socket::Tcp(socket) => socket.try_io(Interest::READABLE, peek),
            Socket::Unix(socket) => socket.try_io(Interest::READABLE, peek),
        }
    }

    /// See [`unsent`].
    pub(crate) fn unsent(&self) -> Option<u32> {
        unsent(self.fd())
    }

    /// Whether the connection is over in both directions: after a reset, and on a Unix socket that the peer has closed.
    /// A system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd(), events: 0, revents: 0 };
        // SAFETY: one pollfd, and no waiting.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        found > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Makes TCP ask the peer's system, after each `interval`, whether it still knows the connection.
    pub(crate) fn probe(&self, interval: Duration) {
        let Socket::Tcp(socket) = self else { return };
        let set = |level, option, value: libc::c_int| {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the descriptor is open and `value` is as long as said. Failing leaves it unprobed.
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
        };
        let seconds = libc::c_int::try_from(interval.as_secs()).unwrap_or(libc::c_int::MAX);
        #[cfg(target_os = "linux")]
        set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds);
        set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds);
        set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    }

    pub(crate) fn fd(&self) -> RawFd {
        match self {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Unix(socket) => socket.as_raw_fd(),
        }
    }

    /// Sends a FIN.
    pub(crate) fn shut_down(&self) {
        let fd = self.fd();
        // SAFETY: `fd` is open. Failing means that the peer has gone.
        unsafe { libc::shutdown(fd, libc::SHUT_WR) };
    }

    /// Makes the close that follows a reset, so that a peer that does not read holds nothing.
    pub(crate) fn reset_on_close(&self) {
        if let Socket::Tcp(socket) = self {
            // Failing leaves an ordinary close.
            let _ = socket.set_zero_linger();
        }
    }
}

/// Bytes in a socket's buffer that the peer has not acknowledged, or on a Unix socket not read; `None` where the system
/// does not tell.
pub(crate) fn unsent(socket: RawFd) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one int, and touches nothing of a descriptor that is no socket.
    let told = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut bytes) };
    u32::try_from(bytes).ok().filter(|_| told == 0)
}

/// The socket as hyper sees it. It keeps the connection's deadlines, at the cost of a cell written per read and
/// write, and no timer.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) connection: Rc<Connection>,
    /// Bytes that a first pass of hyper read and could not parse within its small table of headers.
    pub(crate) rewound: Bytes,
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.rewound.is_empty() {
            let take = self.rewound.len().min(buffer.remaining());
            let bytes = self.rewound.split_to(take);
            buffer.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        // hyper keeps a head in one buffer, of which this is the rest.
        let size = self.connection.head_read() + buffer.remaining();
        if size > self.connection.buffer.get() && !self.connection.hold_buffer(size) {
            return Poll::Pending;
        }
        // SAFETY: the cursor's unfilled part is only written to, by the read, which initialises what it counts.
        let mut unfilled = ReadBuf::uninit(unsafe { buffer.as_mut() });
        let polled = self.connection.socket.borrow_mut().poll_read_buf(cx, &mut unfilled);
        let n = unfilled.filled().len();
        let read = polled.map_ok(|()| n);
        self.connection.has_read(&read);
        ready!(read)?;
        // SAFETY: `n` bytes of the unfilled part were initialised by the read.
        unsafe { buffer.advance(n) };
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.connection.refuses() {
            return Poll::Ready(Ok(buffers.iter().map(|buffer| buffer.len()).sum()));
        }
        let written = self.connection.socket.borrow_mut().poll_write_vectored(cx, buffers);
        self.connection.has_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.has_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
