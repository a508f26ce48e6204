//! A connection's transport: its socket, in the clear or with TLS over it, and what goes with it.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rookery_system::fork::CloseInChild;
use tokio::io::ReadBuf;

use super::connections_per_ip::CountedConnection;
use super::proxy_header::{self, ParseResult};
pub(crate) use super::socket::PeerState;
use super::socket::Socket;
use super::tls::stream::{HandshakeResult, TlsStream};

/// Bytes read at once by those that keep no buffer: what a loopback or 10 Gbit/s socket delivers per wake-up.
const SCRATCH_BYTES: usize = 64 << 10;

/// One buffer to read into for all that keep none: idle WebSockets, and connections that are being closed.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) RefCell<Box<[u8]>>);

impl Scratch {
    pub(crate) fn new() -> Rc<Scratch> {
        Rc::new(Scratch(RefCell::new(vec![0; SCRATCH_BYTES].into())))
    }
}

/// A connected socket, in the clear or with TLS over it. What is read and written is the same bytes in both.
#[derive(Debug)]
pub(crate) struct Transport {
    // Before the socket: a descriptor that was closed may be somebody else's by now.
    _close_in_child: Option<CloseInChild>,
    _counted: Option<CountedConnection>,
    channel: Channel,
}

#[derive(Debug)]
pub(super) enum Channel {
    Plain(Socket),
    // Boxed: a plain connection is not to be as large.
    Tls(Box<TlsStream>),
    /// A part of another's, which alone is read and written.
    Placeholder,
    /// Bytes both ways within another's.
    Multiplexed(Box<dyn MultiplexedStream>),
}

/// Bytes both ways within a transport that others share. What is written has been handed over, and leaves with the others'.
pub(crate) trait MultiplexedStream: fmt::Debug {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>)
    -> Poll<io::Result<()>>;

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// All that was to be written has been.
    fn flush(&mut self);

    /// Takes in what has come and is not to be read yet: how much of that there is now.
    fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize;

    /// How far the peer has ended, as far as the last read or [`buffer_unread`](Self::buffer_unread) has found.
    fn peer_state(&self) -> PeerState;

    /// Throws it away.
    fn discard_unread(&mut self);

    /// Says that nothing more will be written.
    fn shut_down(&mut self);

    fn reset(&mut self);
}

impl Transport {
    pub(super) fn new(
        channel: Channel,
        close_in_child: CloseInChild,
        counted: Option<CountedConnection>,
    ) -> Transport {
        Transport { _close_in_child: Some(close_in_child), _counted: counted, channel }
    }

    /// None of its own: that of a stream within another transport. Nothing comes, and nothing can be written.
    pub(crate) fn placeholder() -> Transport {
        Transport { _close_in_child: None, _counted: None, channel: Channel::Placeholder }
    }

    /// A tunnel within another transport.
    pub(crate) fn multiplexed(stream: Box<dyn MultiplexedStream>) -> Transport {
        Transport { _close_in_child: None, _counted: None, channel: Channel::Multiplexed(stream) }
    }

    /// The TLS over it.
    pub(crate) fn tls(&mut self) -> Option<&mut TlsStream> {
        match &mut self.channel {
            Channel::Plain(_) | Channel::Placeholder | Channel::Multiplexed(_) => None,
            Channel::Tls(tls) => Some(tls),
        }
    }

    /// Whether what is written is sealed, which makes a copy of it.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.channel, Channel::Tls(_))
    }

    fn socket(&self) -> Option<&Socket> {
        match &self.channel {
            Channel::Plain(socket) => Some(socket),
            Channel::Tls(tls) => Some(tls.socket()),
            Channel::Placeholder | Channel::Multiplexed(_) => None,
        }
    }

    /// Waits for the header of the PROXY protocol, and takes it: the client that the proxy speaks for, and the address that it
    /// reached; `None` when it speaks for itself. `InvalidData` when it is none.
    pub(crate) fn poll_proxy_header(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<(SocketAddr, SocketAddr)>>> {
        let mut buffer = [0; proxy_header::MAX_HEADER_SIZE];
        let judge = |bytes: &[u8]| match proxy_header::parse(bytes) {
            ParseResult::Incomplete => None,
            ParseResult::Complete(header) => Some(Some(header)),
            ParseResult::Invalid => Some(None),
        };
        let Some(socket) = self.socket() else { return Poll::Ready(Ok(None)) };
        let header = ready!(socket.poll_peek(cx, &mut buffer, judge))?;
        let Some(header) = header else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        socket.consume(&mut buffer[..header.len])?;
        Poll::Ready(Ok(header.addresses))
    }

    /// Drives the handshake of TLS to its end; there is none in the clear.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<HandshakeResult>> {
        match &mut self.channel {
            Channel::Plain(_) | Channel::Placeholder | Channel::Multiplexed(_) => {
                Poll::Ready(Ok(HandshakeResult::Complete))
            }
            Channel::Tls(tls) => tls.poll_handshake(cx),
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.channel {
            Channel::Plain(socket) => socket.poll_read_ready(cx),
            Channel::Tls(tls) => tls.poll_read_ready(cx),
            Channel::Placeholder | Channel::Multiplexed(_) => Poll::Pending,
        }
    }

    /// Reads; a read that does not fill `buffer` leaves the socket known to be empty, without asking again.
    pub(crate) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.channel {
            Channel::Plain(socket) => socket.poll_read_buf(cx, buffer),
            Channel::Tls(tls) => tls.poll_read_buf(cx, buffer),
            Channel::Placeholder => Poll::Pending,
            Channel::Multiplexed(stream) => stream.poll_read(cx, buffer),
        }
    }

    /// As [`poll_read_buf`](Self::poll_read_buf), into initialised memory.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.poll_read_buf(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes; over TLS some of what was taken may lie here until [`poll_flush`](Self::poll_flush) is done.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.channel {
            Channel::Plain(socket) => socket.poll_write_vectored(cx, buffers),
            Channel::Tls(tls) => tls.poll_write_vectored(cx, buffers),
            Channel::Placeholder => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Channel::Multiplexed(stream) => stream.poll_write_vectored(cx, buffers),
        }
    }

    /// As [`poll_write_vectored`](Self::poll_write_vectored), of a piece that may take as much memory again over TLS, which takes all of it.
    pub(crate) fn poll_write_chunk(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.channel {
            Channel::Tls(tls) => tls.poll_write_chunk(cx, piece),
            _ => self.poll_write_vectored(cx, &[io::IoSlice::new(piece)]),
        }
    }

    /// Waits until the system has all that was written.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.channel {
            Channel::Plain(_) | Channel::Placeholder => Poll::Ready(Ok(())),
            Channel::Tls(tls) => tls.poll_flush(cx),
            Channel::Multiplexed(stream) => {
                stream.flush();
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Takes in what a tunnel has for whoever does not read on, so that it lies in one piece: how much of that there is now. A socket has it
    /// in the system.
    pub(crate) fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.buffer_unread(cx)
        } else {
            0
        }
    }

    /// Looks how far the peer has ended, for an owner that does not read on. A system call, where there is a socket.
    pub(crate) fn peer_state(&self) -> PeerState {
        match &self.channel {
            Channel::Plain(socket) => socket.peer_state(),
            Channel::Tls(tls) => tls.socket().peer_state(),
            Channel::Placeholder => PeerState::Open,
            Channel::Multiplexed(stream) => stream.peer_state(),
        }
    }

    /// Throws away what [`buffer_unread`](Self::buffer_unread) took.
    pub(crate) fn discard_unread(&mut self) {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.discard_unread();
        }
    }

    pub(crate) fn try_write_vectored(&mut self, buffers: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.channel {
            Channel::Plain(socket) => socket.try_write_vectored(buffers),
            Channel::Tls(tls) => tls.try_write_vectored(buffers),
            Channel::Placeholder | Channel::Multiplexed(_) => {
                Err(io::ErrorKind::NotConnected.into())
            }
        }
    }

    /// Sends a part of a file by the system, which copies nothing; 0 at its end. An error of the kind `Unsupported`, or one of
    /// `sendfile`'s, where that cannot be done, and over TLS. Waits for the file's disk if the part is not in the system's
    /// cache.
    pub(crate) fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        match &self.channel {
            Channel::Plain(socket) => socket.poll_send_file(cx, file, at, len),
            Channel::Tls(_) | Channel::Placeholder | Channel::Multiplexed(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// Looks whether there is something to read without taking it: 0 at the peer's end. Over TLS records are opened for that,
    /// one at the most that is to be read.
    pub(crate) fn try_peek(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        match &mut self.channel {
            Channel::Plain(socket) => socket.try_peek().map(|byte| usize::from(byte.is_some())),
            Channel::Tls(tls) => tls.try_peek(cx),
            Channel::Placeholder | Channel::Multiplexed(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Bytes in the socket's buffer that the peer has not acknowledged, or on a Unix socket not read, with those that wait for
    /// it here; `None` where the system does not tell. A system call.
    pub(crate) fn unsent(&self) -> Option<u32> {
        match &self.channel {
            Channel::Plain(socket) => socket.unsent(),
            Channel::Tls(tls) => tls.unsent(),
            Channel::Placeholder | Channel::Multiplexed(_) => None,
        }
    }

    /// Whether the connection is over in both directions: after a reset, and on a Unix socket that the peer has closed.
    /// A system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.socket().is_some_and(Socket::is_hung_up)
    }

    /// Makes TCP ask the peer's system, after each `interval`, whether it still knows the connection.
    pub(crate) fn enable_tcp_keepalive(&self, interval: Duration) {
        if let Some(socket) = self.socket() {
            socket.enable_tcp_keepalive(interval);
        }
    }

    /// Whether the peer has sent a FIN, whatever waits to be read before it. A system call.
    pub(crate) fn has_peer_half_closed(&self) -> bool {
        self.socket().is_some_and(Socket::has_peer_half_closed)
    }

    /// Sets a TCP socket up for a reply that comes in pieces: what was written is soon the peer's, and a peer that is not there
    /// any more is noticed within `patience`, though it sends nothing.
    pub(crate) fn set_for_streaming(&self, timeout: Duration) {
        if let Some(socket) = self.socket() {
            socket.set_for_streaming(timeout);
        }
    }

    /// Sends what has been written and has not left, as far as the socket takes it without waiting.
    pub(crate) fn try_flush(&mut self) {
        if let Channel::Tls(tls) = &mut self.channel {
            tls.try_flush();
        }
    }

    /// Says that nothing more will be sent: a FIN, and over TLS `close_notify` before it (RFC 8446, 6.1).
    pub(crate) fn shut_down(&mut self) {
        match &mut self.channel {
            Channel::Tls(tls) => tls.send_close_notify(),
            Channel::Multiplexed(stream) => stream.shut_down(),
            Channel::Plain(_) | Channel::Placeholder => {}
        }
        if let Some(socket) = self.socket() {
            socket.shut_down();
        }
    }

    /// Makes the close that follows a reset, so that a peer that does not read holds nothing.
    pub(crate) fn reset_on_close(&mut self) {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.reset();
        }
        if let Some(socket) = self.socket() {
            socket.reset_on_close();
        }
    }
}
