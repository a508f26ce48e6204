//! A connected TCP or Unix socket, and the system calls that the server makes on it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::unix_stream::UnixStream;

/// The maximum number of unsent bytes of a streamed response that the system buffers for a socket.
/// With a larger buffer, bytes would count as written long before they are sent.
#[cfg(target_os = "linux")]
const UNSENT_LIMIT: libc::c_int = 128 << 10;

/// The state of a connection, as far as it is known without reading: open, half-closed by the peer,
/// or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerState {
    Open,
    /// The peer has closed its direction of the connection (FIN). Input that it sent before may
    /// still be unread.
    HalfClosed,
    /// The connection is closed in both directions, so that nothing can be sent or received.
    Closed,
}

/// A connected TCP or Unix socket.
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

    /// Reads from the socket into `buffer`. After a read that does not fill `buffer`, the socket
    /// counts as empty until new input arrives, which saves a system call.
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

    /// Sends a range of a file by `sendfile`, which copies no bytes to this process. Returns the
    /// number of bytes sent, which is 0 at the end of the file. Blocks on the disk if the range is
    /// not in the page cache.
    ///
    /// # Errors
    /// Fails with `Unsupported` or an error of `sendfile` if the file cannot be sent without
    /// copying.
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

    /// Checks whether the socket's send buffer is full. If so, marks the socket as not writable, so
    /// that the next write waits instead of making a system call that fails.
    fn detect_full_buffer(&self) {
        // Without this check, the next `sendfile` would collect pages before it fails, which costs
        // ten times as much. A short `sendfile` does not show that the buffer is full, because the
        // file may have ended.
        let fd = self.fd();
        let ask = || {
            let mut poll = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
            // SAFETY: the call reads and writes one pollfd, and does not block.
            let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
            if found == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        // The result is stored in the socket's readiness.
        let _ = match self {
            Socket::Tcp(socket) => socket.try_io(Interest::WRITABLE, ask),
            Socket::Unix(socket) => socket.try_write_with(ask),
        };
    }

    /// Returns the next byte of input without consuming it, or `None` after a FIN.
    pub(crate) fn try_peek(&self) -> io::Result<Option<u8>> {
        let fd = self.fd();
        let peek = || {
            let mut byte = 0u8;
            // SAFETY: `fd` is open, `byte` has space for one byte, and MSG_DONTWAIT keeps the call
            // from blocking.
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

    /// Waits for input until `judge` returns a value, and returns that value. Whenever input
    /// arrives, `judge` is called with all input so far, up to the size of `buffer`. The input is
    /// not consumed.
    ///
    /// # Errors
    /// Fails if the peer half-closes the connection before `judge` returns a value.
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
                    // The socket counts as empty until more bytes arrive.
                    None => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            match judged {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                judged => return Poll::Ready(judged),
            }
        }
    }

    /// Reads and consumes exactly as many bytes as `buffer` holds. The caller must have peeked at
    /// these bytes before.
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
            // SAFETY: `fd` is open, `buffer` has space for `len` bytes, and MSG_DONTWAIT keeps the
            // call from blocking.
            let n = unsafe { libc::recv(fd, start, len, flags | libc::MSG_DONTWAIT) };
            read(&buffer[..usize::try_from(n).map_err(|_| io::Error::last_os_error())?])
        };
        match self {
            Socket::Tcp(socket) => socket.try_io(Interest::READABLE, receive),
            Socket::Unix(socket) => socket.try_read_with(receive),
        }
    }

    /// Returns the number of sent bytes that are still in the socket's send buffer, because the
    /// peer has not acknowledged them (over a Unix socket: has not read them). Returns `None` if
    /// the system does not report the number. Makes a system call.
    pub(crate) fn unsent(&self) -> Option<u32> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int.
        let status = unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) };
        u32::try_from(bytes).ok().filter(|_| status == 0)
    }

    /// Returns true if the connection is closed in both directions. This is the case after a reset,
    /// and after the peer of a Unix socket has closed it. Makes a system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd(), events: 0, revents: 0 };
        // SAFETY: the call reads and writes one pollfd, and does not block.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        found > 0 && poll.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }

    /// Returns the state of the connection, without reading: open, half-closed by the peer, or
    /// closed. A Unix socket that the peer has closed counts as half-closed, because there may be
    /// unread input. Makes a system call.
    pub(crate) fn peer_state(&self) -> PeerState {
        #[cfg(target_os = "linux")]
        const SHUT: libc::c_short = libc::POLLRDHUP;
        #[cfg(not(target_os = "linux"))]
        const SHUT: libc::c_short = 0;
        let mut poll = libc::pollfd { fd: self.fd(), events: SHUT, revents: 0 };
        // SAFETY: the call reads and writes one pollfd, and does not block.
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

    /// Enables TCP keepalive probes after each `interval` without traffic. They detect a peer that
    /// has vanished.
    pub(crate) fn enable_tcp_keepalive(&self, interval: Duration) {
        let Socket::Tcp(socket) = self else { return };
        let set = |level, option, value: libc::c_int| {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the descriptor is open and `size` is the size of `value`. If the call fails,
            // no probes are sent.
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

    /// Returns true if the peer has sent a FIN, even if input from before the FIN is unread. Makes
    /// a system call.
    pub(crate) fn has_peer_half_closed(&self) -> bool {
        #[cfg(target_os = "linux")]
        const SHUT: libc::c_short = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
        #[cfg(not(target_os = "linux"))]
        const SHUT: libc::c_short = libc::POLLHUP | libc::POLLERR;
        let mut poll = libc::pollfd { fd: self.fd(), events: SHUT, revents: 0 };
        // SAFETY: the call reads and writes one pollfd, and does not block.
        let found = unsafe { libc::poll(&raw mut poll, 1, 0) };
        found > 0 && poll.revents & SHUT != 0
    }

    /// Configures a TCP socket for a streamed response. The system then buffers only a limited
    /// number of unsent bytes, and detects within `timeout` that a peer has vanished.
    pub(crate) fn set_for_streaming(&self, timeout: Duration) {
        #[cfg(target_os = "linux")]
        if let Socket::Tcp(socket) = self {
            let set = |option, value: libc::c_int| {
                let size = size_of::<libc::c_int>() as libc::socklen_t;
                let value = (&raw const value).cast();
                // SAFETY: the descriptor is open and `size` is the size of `value`. If the call
                // fails, the system's default applies.
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

    /// Sends a FIN, which ends this side's direction of the connection.
    pub(crate) fn shut_down(&self) {
        let fd = self.fd();
        // SAFETY: `fd` is open. A failure means that the peer has disconnected.
        unsafe { libc::shutdown(fd, libc::SHUT_WR) };
    }

    /// Configures the socket so that closing it resets the connection. The system then discards
    /// bytes that the peer has not received yet, instead of keeping them for a peer that does not
    /// read.
    pub(crate) fn reset_on_close(&self) {
        if let Socket::Tcp(socket) = self {
            // If the call fails, the close is an ordinary one.
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
