//! The transport of a connection: a socket with or without TLS, or a stream within another
//! connection.

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

/// The size of the shared read buffer. It is about what a loopback or 10 Gbit/s socket delivers per
/// wake-up.
const SCRATCH_BYTES: usize = 64 << 10;

/// A read buffer that all connections without a buffer of their own share: idle WebSockets, and
/// connections that are being closed.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) RefCell<Box<[u8]>>);

impl Scratch {
    pub(crate) fn new() -> Rc<Scratch> {
        Rc::new(Scratch(RefCell::new(vec![0; SCRATCH_BYTES].into())))
    }
}

/// The transport of a connection. Its bytes are those of the application protocol, with or without
/// TLS.
#[derive(Debug)]
pub(crate) struct Transport {
    // Dropped before the socket, because another thread may reuse the number of a closed
    // descriptor.
    _close_in_child: Option<CloseInChild>,
    _counted: Option<CountedConnection>,
    channel: Channel,
}

#[derive(Debug)]
pub(super) enum Channel {
    Plain(Socket),
    // Boxed to keep transports without TLS small.
    Tls(Box<TlsStream>),
    /// The transport of an HTTP/2 stream whose connection reads and writes for it.
    Placeholder,
    /// A stream of bytes within another connection.
    Multiplexed(Box<dyn MultiplexedStream>),
}

/// A bidirectional stream of bytes within another connection, such as an HTTP/2 stream. Written
/// bytes are passed to that connection, which sends them.
pub(crate) trait MultiplexedStream: fmt::Debug {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>)
    -> Poll<io::Result<()>>;

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Declares that all bytes to be sent have been written.
    fn flush(&mut self);

    /// Buffers input that has arrived and is not to be read yet. Returns the number of buffered
    /// bytes.
    fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize;

    /// Returns the state of the peer's side, as found by the last read or
    /// [`buffer_unread`](Self::buffer_unread).
    fn peer_state(&self) -> PeerState;

    /// Discards the buffered input.
    fn discard_unread(&mut self);

    /// Ends this side of the stream.
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

    /// Makes the transport of a stream whose connection reads and writes for it. This transport has
    /// no input, and writing fails.
    pub(crate) fn placeholder() -> Transport {
        Transport { _close_in_child: None, _counted: None, channel: Channel::Placeholder }
    }

    /// Makes the transport of a stream within another connection.
    pub(crate) fn multiplexed(stream: Box<dyn MultiplexedStream>) -> Transport {
        Transport { _close_in_child: None, _counted: None, channel: Channel::Multiplexed(stream) }
    }

    /// Returns the TLS layer, if there is one.
    pub(crate) fn tls(&mut self) -> Option<&mut TlsStream> {
        match &mut self.channel {
            Channel::Plain(_) | Channel::Placeholder | Channel::Multiplexed(_) => None,
            Channel::Tls(tls) => Some(tls),
        }
    }

    /// Returns true if written bytes are encrypted, which copies them.
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

    /// Waits for the header of the PROXY protocol and consumes it. Returns the addresses of the
    /// client and of the server, or `None` if the proxy made the connection for itself.
    ///
    /// # Errors
    /// Fails with `InvalidData` if the first bytes are not a header, and if the peer disconnects.
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

    /// Drives the TLS handshake to its end. Returns at once if there is no TLS.
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

    /// Reads into `buffer`. After a read that does not fill `buffer`, the socket counts as empty
    /// without another system call.
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

    /// Reads into initialized memory, like [`poll_read_buf`](Self::poll_read_buf).
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.poll_read_buf(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes bytes. Over TLS, accepted bytes may stay in this process until
    /// [`poll_flush`](Self::poll_flush) has completed.
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

    /// Writes a chunk of a large body. Over TLS, the whole chunk is accepted at once, which may use
    /// as much memory again as the chunk.
    pub(crate) fn poll_write_chunk(
        &mut self,
        cx: &mut Context<'_>,
        chunk: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.channel {
            Channel::Tls(tls) => tls.poll_write_chunk(cx, chunk),
            _ => self.poll_write_vectored(cx, &[io::IoSlice::new(chunk)]),
        }
    }

    /// Waits until the system has accepted all written bytes.
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

    /// Buffers unread input of a stream within another connection, for an owner that does not read.
    /// Returns the number of buffered bytes. A socket buffers its input in the system, so 0 is
    /// returned.
    pub(crate) fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.buffer_unread(cx)
        } else {
            0
        }
    }

    /// Returns the state of the peer's side, for an owner that does not read. Makes a system call
    /// if there is a socket.
    pub(crate) fn peer_state(&self) -> PeerState {
        match &self.channel {
            Channel::Plain(socket) => socket.peer_state(),
            Channel::Tls(tls) => tls.socket().peer_state(),
            Channel::Placeholder => PeerState::Open,
            Channel::Multiplexed(stream) => stream.peer_state(),
        }
    }

    /// Discards the input buffered by [`buffer_unread`](Self::buffer_unread).
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

    /// Sends a part of a file by `sendfile`, which copies no bytes to this process. Returns 0 at
    /// the end of the file. Blocks on the disk if the part is not in the system's page cache.
    ///
    /// # Errors
    /// Fails with `Unsupported` over TLS, and with that or an error of `sendfile` if the file
    /// cannot be sent in this way.
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

    /// Checks whether there is input, without consuming it. Returns 0 after a FIN. Over TLS,
    /// records are decrypted until one contains data.
    pub(crate) fn try_peek(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        match &mut self.channel {
            Channel::Plain(socket) => socket.try_peek().map(|byte| usize::from(byte.is_some())),
            Channel::Tls(tls) => tls.try_peek(cx),
            Channel::Placeholder | Channel::Multiplexed(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Returns the number of bytes in the socket's buffer that the peer has not acknowledged, or on
    /// a Unix socket not read, plus those that wait in this process. Returns `None` if the system
    /// does not report it. Makes a system call.
    pub(crate) fn unsent(&self) -> Option<u32> {
        match &self.channel {
            Channel::Plain(socket) => socket.unsent(),
            Channel::Tls(tls) => tls.unsent(),
            Channel::Placeholder | Channel::Multiplexed(_) => None,
        }
    }

    /// Returns true if the connection is closed in both directions: after a reset, and after the
    /// peer of a Unix socket has closed it. Makes a system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.socket().is_some_and(Socket::is_hung_up)
    }

    /// Enables TCP keepalive probes, which detect a peer that has vanished, after each `interval`
    /// without traffic.
    pub(crate) fn enable_tcp_keepalive(&self, interval: Duration) {
        if let Some(socket) = self.socket() {
            socket.enable_tcp_keepalive(interval);
        }
    }

    /// Returns true if the peer has sent a FIN, even if earlier input is unread. Makes a system
    /// call.
    pub(crate) fn has_peer_half_closed(&self) -> bool {
        self.socket().is_some_and(Socket::has_peer_half_closed)
    }

    /// Configures a TCP socket for a streamed response: limits the bytes that the system buffers,
    /// and detects within `timeout` that a peer has vanished, even if the peer sends nothing.
    pub(crate) fn set_for_streaming(&self, timeout: Duration) {
        if let Some(socket) = self.socket() {
            socket.set_for_streaming(timeout);
        }
    }

    /// Sends written bytes that have not left, as many as the socket accepts without waiting.
    pub(crate) fn try_flush(&mut self) {
        if let Channel::Tls(tls) = &mut self.channel {
            tls.try_flush();
        }
    }

    /// Ends this side of the connection by a FIN, preceded by `close_notify` over TLS (RFC 8446,
    /// 6.1).
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

    /// Makes a later close reset the connection, so that the system keeps no bytes for a peer that
    /// does not read.
    pub(crate) fn reset_on_close(&mut self) {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.reset();
        }
        if let Some(socket) = self.socket() {
            socket.reset_on_close();
        }
    }
}
