//! A connected socket: TCP, or between processes of one machine. The module `calls` has the system
//! calls that differ, in one file for Linux and one for all other systems.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rookery_system::socket::{self, BorrowedSocket};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::local::LocalStream;

#[cfg_attr(all(target_os = "linux", not(feature = "portable")), path = "socket_calls/linux.rs")]
#[cfg_attr(any(not(target_os = "linux"), feature = "portable"), path = "socket_calls/portable.rs")]
mod calls;

/// Reads from the socket without blocking. If `peek` is true, the bytes are read again by the next
/// call.
fn receive(socket: BorrowedSocket<'_>, buffer: &mut [u8], peek: bool) -> io::Result<usize> {
    let socket = SockRef::from(&socket);
    let (start, len) = (buffer.as_mut_ptr().cast::<MaybeUninit<u8>>(), buffer.len());
    // SAFETY: the memory is that of `buffer`, and socket2 writes only initialized bytes to it.
    let buffer = unsafe { std::slice::from_raw_parts_mut(start, len) };
    // Every socket of the server is non-blocking.
    if peek { socket.peek(buffer) } else { socket.recv(buffer) }
}

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

/// A connected socket: TCP, or between processes of one machine.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// A Unix socket, or on Windows a named pipe.
    Local(LocalStream),
}

/// The maximum number of bytes of one write over TCP. Windows takes all bytes of a write, however
/// many, if the socket's buffer is not full: the server could neither limit the memory of responses
/// nor measure how fast a client reads. Other systems take what fits into the buffer.
const MAX_WRITE: usize = if cfg!(windows) { 64 << 10 } else { usize::MAX };

/// The maximum number of buffers of a write that is shortened.
const MAX_BUFFERS: usize = 8;

/// Calls `write` with `buffers`, or if they have more than `max` bytes, with as many of them from
/// the start as `max` permits.
pub(super) fn write_at_most<T>(
    max: usize,
    buffers: &[io::IoSlice<'_>],
    write: impl FnOnce(&[io::IoSlice<'_>]) -> T,
) -> T {
    if max == usize::MAX || buffers.iter().map(|buffer| buffer.len()).sum::<usize>() <= max {
        return write(buffers);
    }
    let mut first = [io::IoSlice::new(&[]); MAX_BUFFERS];
    let mut rest = max;
    for (at, buffer) in first.iter_mut().zip(buffers.iter().filter(|buffer| !buffer.is_empty())) {
        let len = buffer.len().min(rest);
        *at = io::IoSlice::new(&buffer[..len]);
        rest -= len;
    }
    write(&first)
}

impl Socket {
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Tcp(socket) => socket.poll_read_ready(cx),
            Socket::Local(socket) => socket.poll_read_ready(cx),
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
            Socket::Local(socket) => AsyncRead::poll_read(Pin::new(socket), cx, buffer),
        }
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Socket::Tcp(socket) => write_at_most(MAX_WRITE, buffers, |buffers| {
                AsyncWrite::poll_write_vectored(Pin::new(socket), cx, buffers)
            }),
            Socket::Local(socket) => AsyncWrite::poll_write_vectored(Pin::new(socket), cx, buffers),
        }
    }

    pub(crate) fn try_write_vectored(&self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => {
                write_at_most(MAX_WRITE, buffers, |buffers| socket.try_write_vectored(buffers))
            }
            Socket::Local(socket) => socket.try_write_vectored(buffers),
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
                Socket::Local(socket) => socket.poll_write_ready(cx),
            })?;
            let sent = self.try_write_with(|socket| calls::send_file(socket, file, at, len));
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
        // The result is stored in the socket's readiness.
        let _ = self.try_write_with(|socket| {
            if calls::can_write(socket) { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
    }

    /// Returns the next byte of input without consuming it, or `None` after a FIN.
    pub(crate) fn try_peek(&self) -> io::Result<Option<u8>> {
        #[cfg(windows)]
        if let Socket::Local(pipe) = self {
            return pipe.try_peek();
        }
        let mut byte = [0];
        self.try_read_with(|socket| {
            let n = receive(socket, &mut byte, true)?;
            Ok((n > 0).then_some(byte[0]))
        })
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
            let judged = self.receive(buffer, true, |bytes| {
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
        self.receive(buffer, false, |taken| {
            if taken.len() == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    }

    fn receive<T>(
        &self,
        buffer: &mut [u8],
        peek: bool,
        read: impl Fn(&[u8]) -> io::Result<T>,
    ) -> io::Result<T> {
        self.try_read_with(|socket| {
            let n = receive(socket, buffer, peek)?;
            read(&buffer[..n])
        })
    }

    /// Reads from the socket by calling `read`. If `read` returns `WouldBlock`, the socket counts
    /// as empty until new input arrives.
    fn try_read_with<T>(
        &self,
        read: impl FnOnce(BorrowedSocket<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Socket::Tcp(stream) => {
                stream.try_io(Interest::READABLE, || read(socket::borrow(stream)))
            }
            Socket::Local(stream) => stream.try_read_with(read),
        }
    }

    /// Writes to the socket by calling `write`. If `write` returns `WouldBlock`, the socket counts
    /// as full until it is writable again.
    fn try_write_with<T>(
        &self,
        write: impl FnOnce(BorrowedSocket<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Socket::Tcp(stream) => {
                stream.try_io(Interest::WRITABLE, || write(socket::borrow(stream)))
            }
            Socket::Local(stream) => stream.try_send_with(write),
        }
    }

    /// Returns the handle for system calls, or `None` for a named pipe, which is no socket.
    fn handle(&self) -> Option<BorrowedSocket<'_>> {
        match self {
            Socket::Tcp(stream) => Some(socket::borrow(stream)),
            Socket::Local(stream) => stream.handle(),
        }
    }

    /// Returns the number of sent bytes that are still in the socket's send buffer, because the
    /// peer has not acknowledged them (over a Unix socket: has not read them). Returns `None` if
    /// the system does not report the number. Makes a system call.
    pub(crate) fn unsent(&self) -> Option<u32> {
        calls::unsent(self.handle()?)
    }

    /// Returns true if the connection is closed in both directions. This is the case after a reset,
    /// and after the peer of a Unix socket has closed it. Makes a system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        #[cfg(windows)]
        if let Socket::Local(pipe) = self {
            return pipe.is_ended();
        }
        self.handle().is_some_and(calls::is_hung_up)
    }

    /// Returns the state of the connection, without reading: open, half-closed by the peer, or
    /// closed. A Unix socket that the peer has closed counts as half-closed, because there may be
    /// unread input. Makes a system call.
    pub(crate) fn peer_state(&self) -> PeerState {
        let is_tcp = matches!(self, Socket::Tcp(_));
        self.handle().map_or(PeerState::Open, |socket| calls::peer_state(socket, is_tcp))
    }

    /// Enables TCP keepalive probes after each `interval` without traffic. They detect a peer that
    /// has vanished.
    pub(crate) fn enable_tcp_keepalive(&self, interval: Duration) {
        if let Socket::Tcp(stream) = self {
            let keepalive = TcpKeepalive::new().with_time(interval).with_interval(interval);
            // If the call fails, no probes are sent.
            let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
        }
    }

    /// Returns true if the peer has sent a FIN, even if input from before the FIN is unread. Makes
    /// a system call.
    pub(crate) fn has_peer_half_closed(&self) -> bool {
        self.handle().is_some_and(calls::has_peer_half_closed)
    }

    /// Configures a TCP socket for a streamed response. The system then buffers only a limited
    /// number of unsent bytes, and detects within `timeout` that a peer has vanished.
    pub(crate) fn set_for_streaming(&self, timeout: Duration) {
        if let Socket::Tcp(stream) = self {
            calls::set_for_streaming(socket::borrow(stream), timeout);
        }
    }

    /// Sends a FIN, which ends this side's direction of the connection.
    pub(crate) fn shut_down(&self) {
        // A named pipe cannot end one direction alone. Its client sees the end when it is closed.
        if let Some(socket) = self.handle() {
            // A failure means that the peer has disconnected.
            let _ = SockRef::from(&socket).shutdown(Shutdown::Write);
        }
    }

    /// Configures the socket so that closing it resets the connection. The system then discards
    /// bytes that the peer has not received yet, instead of keeping them for a peer that does not
    /// read.
    pub(crate) fn reset_on_close(&self) {
        if let Socket::Tcp(stream) = self {
            // If the call fails, the close is an ordinary one.
            let _ = stream.set_zero_linger();
        }
        self.disconnect_pipe();
    }

    /// Discards the bytes that the client of a named pipe has not read, and disconnects the client.
    /// The system would keep them until the client closes its end. Other sockets need nothing.
    #[cfg_attr(unix, expect(clippy::unused_self, reason = "Windows alone has named pipes"))]
    pub(crate) fn disconnect_pipe(&self) {
        #[cfg(windows)]
        if let Socket::Local(pipe) = self {
            pipe.disconnect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    fn written(max: usize, buffers: &[&[u8]]) -> Vec<u8> {
        let buffers: Vec<IoSlice<'_>> = buffers.iter().map(|bytes| IoSlice::new(bytes)).collect();
        write_at_most(max, &buffers, |first| first.iter().flat_map(|part| part.to_vec()).collect())
    }

    #[test]
    fn a_shortened_write_is_the_start_of_what_is_given() {
        let empty: &[u8] = &[];
        let buffers = [&[empty; 20][..], &[b"abc", b"", b"defg", b"h"]].concat();
        for max in 1..10 {
            assert_eq!(written(max, &buffers), &b"abcdefgh"[..max.min(8)]);
        }
        assert_eq!(written(usize::MAX, &buffers), b"abcdefgh");
        // More buffers than a shortened write may have.
        assert_eq!(written(29, &[&b"ab"[..]; 15]), b"ab".repeat(MAX_BUFFERS));
    }
}
