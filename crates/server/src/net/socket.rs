//! A connected socket, of TCP or a Unix one, and what the system can be asked of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::unix_stream::UnixStream;

/// Bytes of a stream that the system takes before it has sent those before: more would count as written long before they
/// leave.
#[cfg(target_os = "linux")]
const UNSENT_LIMIT: libc::c_int = 128 << 10;

/// How far the peer of a transport has ended, as far as that is known without reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerState {
    Open,
    /// The peer sends no more. What it sent before may lie unread.
    HalfClosed,
    /// The connection is over in both directions.
    Closed,
}

/// See the module.
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

    /// Sends a part of a file by the system, which copies nothing; 0 at its end. An error of the kind `Unsupported`, or one of
    /// `sendfile`'s, where that cannot be done. Waits for the file's disk if the part is not in the system's cache.
    pub(crate) fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(match self {
                Socket::Tcp(socket) => socket.poll_write_ready(cx),
                Socket::Unix(socket) => socket.poll_write_ready(cx),
            })?;
            let sent = match self {
                Socket::Tcp(socket) => {
                    socket.try_io(Interest::WRITABLE, || send_file(socket, file, at, len))
                }
                Socket::Unix(socket) => socket.try_write_with(|| send_file(socket, file, at, len)),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(n) if n < len => self.detect_full_buffer(),
                _ => {}
            }
            return Poll::Ready(sent);
        }
    }

    /// Makes the next write wait, if the socket is full. A `sendfile` in vain gathers pages first, which costs ten times as
    /// much as asking; and one that was cut short by the end of its file must not wait.
    fn detect_full_buffer(&self) {
        let fd = self.fd();
        let ask = || {
            let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one pollfd, and no waiting.
            let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
            if found == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        // What it says is in the socket's readiness.
        let _ = match self {
            Socket::Tcp(socket) => socket.try_io(Interest::WRITABLE, ask),
            Socket::Unix(socket) => socket.try_write_with(ask),
        };
    }

    /// Looks at the next byte without taking it: `None` after a FIN.
    pub(crate) fn try_peek(&self) -> io::Result<Option<u8>> {
        let fd = self.fd();
        let peek = || {
            let mut byte = 0u8;
            // SAFETY: `fd` is open, `byte` has room for one byte, and MSG_DONTWAIT keeps the call from blocking.
            let n = unsafe {
                libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_PEEK | libc::MSG_DONTWAIT)
            };
            match n {
                0 => Ok(None),
                1.. => Ok(Some(byte)),
                _ => Err(io::Error::last_os_error()),
            }
        };
        match self {
            Socket::Tcp(socket) => socket.try_io(Interest::READABLE, peek),
            Socket::Unix(socket) => socket.try_read_with(peek),
        }
    }

    /// Waits until `judge` has made something of what has come, of `buffer`'s length at most and without taking it. An error when
    /// the peer has ended before.
    pub(crate) fn poll_peek<T>(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        judge: impl Fn(&[u8]) -> Option<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            let judged = self.receive(buffer, libc::MSG_PEEK, |bytes| {
                match judge(bytes) {
                    Some(judged) => Ok(judged),
                    None if bytes.is_empty() || self.has_peer_half_closed() => {
                        Err(io::ErrorKind::UnexpectedEof.into())
                    }
                    // Until there is more.
                    None => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match judged {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                judged => return Poll::Ready(judged),
            }
        }
    }

    /// Takes what has been looked at.
    pub(crate) fn consume(&self, buffer: &mut [u8]) -> io::Result<()> {
        let len = buffer.len();
        self.receive(buffer, 0, |taken| {
            if taken.len() == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    }

    fn receive<T>(
        &self,
        buffer: &mut [u8],
        flags: libc::c_int,
        read: impl Fn(&[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        let fd = self.fd();
        let receive = || {
            let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `fd` is open, `buffer` has room for `len` bytes, and MSG_DONTWAIT keeps the call from blocking.
            let n = unsafe { libc::recv(fd, start, len, flags | libc::MSG_DONTWAIT) };
            read(&buffer[..usize::try_from(n).map_err(|_| io::Error::last_os_error())?])
        };
        match self {
            Socket::Tcp(socket) => socket.try_io(Interest::READABLE, receive),
            Socket::Unix(socket) => socket.try_read_with(receive),
        }
    }

    /// Bytes in the socket's buffer that the peer has not acknowledged, or on a Unix socket not read; `None` where the
    /// system does not tell. A system call.
    pub(crate) fn unsent(&self) -> Option<u32> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int.
        let status = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        u32::try_from(bytes).ok().filter(|_| status == 0)
    }

    /// Whether the connection is over in both directions: after a reset, and on a Unix socket that the peer has closed.
    /// A system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd(), events: 0, revents: 0 };
        // SAFETY: one pollfd, and no waiting.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        found > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Looks how far the peer has ended without reading. A Unix socket whose peer has closed may have bytes to read all the same. A
    /// system call.
    pub(crate) fn peer_state(&self) -> PeerState {
        #[cfg(target_os = "linux")]
        const SHUT: libc::c_short = libc::POLLRDHUP;
        #[cfg(not(target_os = "linux"))]
        const SHUT: libc::c_short = 0;
        let mut poll = libc::pollfd { fd: self.fd(), events: SHUT, revents: 0 };
        // SAFETY: one pollfd, and no waiting.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        if found <= 0 || poll.revents == 0 {
            PeerState::Open
        } else if matches!(self, Socket::Tcp(_))
            && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
        {
            PeerState::Closed
        } else {
            PeerState::HalfClosed
        }
    }

    /// Makes TCP ask the peer's system, after each `interval`, whether it still knows the connection.
    pub(crate) fn enable_tcp_keepalive(&self, interval: Duration) {
        let Socket::Tcp(socket) = self else { return };
        let set = |level, option, value: libc::c_int| {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the descriptor is open and `value` is as long as said. Failing leaves it unprobed.
            unsafe {
                libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
            };
        };
        let seconds = libc::c_int::try_from(interval.as_secs()).unwrap_or(libc::c_int::MAX);
        #[cfg(target_os = "linux")]
        set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds);
        set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds);
        set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    }

    /// Whether the peer has sent a FIN, whatever waits to be read before it. A system call.
    pub(crate) fn has_peer_half_closed(&self) -> bool {
        #[cfg(target_os = "linux")]
        const SHUT: libc::c_short = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        #[cfg(not(target_os = "linux"))]
        const SHUT: libc::c_short = libc::POLLHUP | libc::POLLERR;
        let mut poll = libc::pollfd { fd: self.fd(), events: SHUT, revents: 0 };
        // SAFETY: one pollfd, and no waiting.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        found > 0 && poll.revents & SHUT != 0
    }

    /// Sets a TCP socket up for a reply that comes in pieces: what was written is soon the peer's, and a peer that is not there
    /// any more is noticed within `patience`, though it sends nothing.
    pub(crate) fn set_for_streaming(&self, timeout: Duration) {
        #[cfg(target_os = "linux")]
        if let Socket::Tcp(socket) = self {
            let set = |option, value: libc::c_int| {
                let size = size_of::<libc::c_int>() as libc::socklen_t;
                let value = (&raw const value).cast();
                // SAFETY: the descriptor is open and `value` is as long as said. Failing leaves the system's default.
                unsafe {
                    libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, value, size)
                };
            };
            set(libc::TCP_NOTSENT_LOWAT, UNSENT_LIMIT);
            set(
                libc::TCP_USER_TIMEOUT,
                libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX),
            );
        }
        #[cfg(not(target_os = "linux"))]
        let _ = timeout;
    }

    fn fd(&self) -> RawFd {
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

#[cfg(target_os = "linux")]
fn send_file(socket: &impl AsFd, file: &File, mut at: u64, len: usize) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut at), len)?)
}

#[cfg(not(target_os = "linux"))]
fn send_file(_: &impl AsFd, _: &File, _: u64, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}
