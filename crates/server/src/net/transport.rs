//! The transport of a connection, which reads and writes its bytes: a socket with or without TLS,
//! or a stream within another connection, such as an HTTP/2 stream.

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

use super::proxy_header::{self, ParseResult};
pub(crate) use super::socket::PeerState;
use super::socket::{Socket, write_at_most};
use super::tls::stream::{HandshakeResult, TlsStream};
use crate::connections::peers::Counted;

/// The size in bytes of the read buffer that connections share. It is about what a loopback or 10
/// Gbit/s socket delivers per wake-up.
const SCRATCH_BYTES: usize = 64 << 10;

/// The read buffer that all connections without a read buffer of their own share. These are
/// WebSockets, and connections that are being closed.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) RefCell<Box<[u8]>>);

impl Scratch {
    pub(crate) fn new() -> Rc<Scratch> {
        Rc::new(Scratch(RefCell::new(vec![0; SCRATCH_BYTES].into())))
    }
}

/// The transport of a connection: a socket with or without TLS, or a stream within another
/// connection. Its functions read and write the unencrypted bytes of HTTP or of a WebSocket.
#[derive(Debug)]
pub(crate) struct Transport {
    // Dropped before the socket, because another thread may reuse the number of a closed
    // descriptor.
    _close_in_child: Option<CloseInChild>,
    _counted: Option<Counted>,
    channel: Channel,
}

#[derive(Debug)]
pub(super) enum Channel {
    Plain(Socket),
    // Boxed to keep transports without TLS small.
    Tls(Box<TlsStream>),
    /// A transport without input and output. An HTTP/2 stream has it while the HTTP/2 connection
    /// itself reads and writes the bytes of the stream.
    Placeholder,
    /// A stream of bytes within another connection, such as an HTTP/2 stream.
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

    /// Notifies the stream that no more bytes are waiting to be written, so that other streams can
    /// use its unused flow-control capacity.
    fn flush(&mut self);

    /// Moves input that has arrived on the stream into a buffer, because the reader does not want
    /// it yet. Returns the number of buffered bytes.
    fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize;

    /// Returns the state of the stream that the last read or [`buffer_unread`](Self::buffer_unread)
    /// has shown: open, half-closed by the peer, or closed.
    fn peer_state(&self) -> PeerState;

    /// Discards the buffered input of the stream.
    fn discard_unread(&mut self);

    /// Ends this side's direction of the stream, so that the peer receives no more data.
    fn shut_down(&mut self);

    fn reset(&mut self);
}

impl Transport {
    pub(super) fn new(
        channel: Channel,
        close_in_child: CloseInChild,
        counted: Option<Counted>,
    ) -> Transport {
        Transport { _close_in_child: Some(close_in_child), _counted: counted, channel }
    }

    /// Makes the transport of an HTTP/2 stream whose connection reads and writes for it. This
    /// transport has no input, and writing to it fails.
    pub(crate) fn placeholder() -> Transport {
        Transport { _close_in_child: None, _counted: None, channel: Channel::Placeholder }
    }

    /// Makes the transport of a stream within another connection, such as an HTTP/2 stream.
    pub(crate) fn multiplexed(stream: Box<dyn MultiplexedStream>) -> Transport {
        Transport { _close_in_child: None, _counted: None, channel: Channel::Multiplexed(stream) }
    }

    /// Returns the connection's TLS stream, or `None` without TLS.
    pub(crate) fn tls(&mut self) -> Option<&mut TlsStream> {
        match &mut self.channel {
            Channel::Plain(_) | Channel::Placeholder | Channel::Multiplexed(_) => None,
            Channel::Tls(tls) => Some(tls),
        }
    }

    /// Returns true if the transport encrypts written bytes, which requires a copy of them.
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

    /// Waits for the PROXY protocol header of a new connection and consumes it. Returns the
    /// addresses of the client and of the server, or `None` if the proxy opened the connection for
    /// its own purposes, such as a health check.
    ///
    /// # Errors
    /// Fails with `InvalidData` if the connection does not begin with a PROXY protocol header, and
    /// with another error if the peer disconnects.
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

    /// Performs the TLS handshake of the connection until it is complete or fails. Returns at once
    /// if there is no TLS.
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

    /// Reads from the transport into `buffer`. After a read that does not fill `buffer`, the socket
    /// counts as empty until new input arrives, which saves a system call.
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

    /// Reads from the transport into `buffer`, and returns the number of bytes read. After a read
    /// that does not fill `buffer`, the socket counts as empty until new input arrives, which saves
    /// a system call.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(self.poll_read_buf(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes bytes to the transport. Over TLS, written bytes may stay in this process until
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

    /// Writes at most the first `max` bytes of several buffers to the transport.
    pub(crate) fn poll_write_at_most(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        write_at_most(max, buffers, |buffers| self.poll_write_vectored(cx, buffers))
    }

    /// Writes a chunk of a large body to the transport. Over TLS, the whole chunk is accepted and
    /// encrypted at once, which may need as much additional memory as the chunk itself.
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

    /// Waits until the operating system has accepted all bytes that were written to the transport.
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

    /// Buffers the input of a stream within another connection (such as HTTP/2) while the server
    /// does not read the stream. Returns the number of buffered bytes. For a socket, returns 0,
    /// because the system buffers the input.
    pub(crate) fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.buffer_unread(cx)
        } else {
            0
        }
    }

    /// Returns the state of the connection, without reading: open, half-closed by the peer, or
    /// closed. Makes a system call if the transport has a socket.
    pub(crate) fn peer_state(&self) -> PeerState {
        match &self.channel {
            Channel::Plain(socket) => socket.peer_state(),
            Channel::Tls(tls) => tls.socket().peer_state(),
            Channel::Placeholder => PeerState::Open,
            Channel::Multiplexed(stream) => stream.peer_state(),
        }
    }

    /// Discards the input that [`buffer_unread`](Self::buffer_unread) has buffered.
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

    /// Sends a range of a file by `sendfile`, which copies no bytes to this process. Returns the
    /// number of bytes sent, which is 0 at the end of the file. Blocks on the disk if the range is
    /// not in the page cache.
    ///
    /// # Errors
    /// Fails with `Unsupported` if the transport is not a plain socket, for example over TLS. Fails
    /// with `Unsupported` or an error of `sendfile` if the system cannot send the file without
    /// copying.
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

    /// Checks whether there is input, without consuming it. Returns 0 after a FIN, a positive
    /// number if there is input, and otherwise the error `WouldBlock`. Over TLS, records are
    /// decrypted until one contains data.
    pub(crate) fn try_peek(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        match &mut self.channel {
            Channel::Plain(socket) => socket.try_peek().map(|byte| usize::from(byte.is_some())),
            Channel::Tls(tls) => tls.try_peek(cx),
            Channel::Placeholder | Channel::Multiplexed(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Returns the number of bytes that TLS may hold of the peer's input, in addition to those of
    /// an idle connection. Returns `None` without TLS.
    pub(crate) fn held_input(&self) -> Option<usize> {
        match &self.channel {
            Channel::Tls(tls) => Some(tls.held_input()),
            Channel::Plain(_) | Channel::Placeholder | Channel::Multiplexed(_) => None,
        }
    }

    /// Returns the number of bytes that the peer has not acknowledged (over a Unix socket: not
    /// read), including those that wait in this process. Returns `None` if the system does not
    /// report it. Makes a system call.
    pub(crate) fn unsent(&self) -> Option<u32> {
        match &self.channel {
            Channel::Plain(socket) => socket.unsent(),
            Channel::Tls(tls) => tls.unsent(),
            Channel::Placeholder | Channel::Multiplexed(_) => None,
        }
    }

    /// Returns true if the connection is closed in both directions. This is the case after a reset,
    /// and after the peer of a Unix socket has closed it. Makes a system call.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.socket().is_some_and(Socket::is_hung_up)
    }

    /// Enables TCP keepalive probes after each `interval` without traffic. They detect a peer that
    /// has vanished.
    pub(crate) fn enable_tcp_keepalive(&self, interval: Duration) {
        if let Some(socket) = self.socket() {
            socket.enable_tcp_keepalive(interval);
        }
    }

    /// Returns true if the peer has sent a FIN, even if input from before the FIN is unread. Makes
    /// a system call.
    pub(crate) fn has_peer_half_closed(&self) -> bool {
        self.socket().is_some_and(Socket::has_peer_half_closed)
    }

    /// Configures a TCP socket for a streamed response. The system then buffers only a limited
    /// number of unsent bytes, and detects within `timeout` that a peer has vanished.
    pub(crate) fn set_for_streaming(&self, timeout: Duration) {
        if let Some(socket) = self.socket() {
            socket.set_for_streaming(timeout);
        }
    }

    /// Sends the bytes that were written to the transport and not sent yet, as far as the socket
    /// accepts them without waiting.
    pub(crate) fn try_flush(&mut self) {
        if let Channel::Tls(tls) = &mut self.channel {
            tls.try_flush();
        }
    }

    /// Ends this side's direction of the connection by a FIN. Over TLS, the alert `close_notify` is
    /// sent first (RFC 8446, 6.1).
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

    /// Configures the transport so that closing it resets the connection. The system then keeps no
    /// bytes for a peer that does not read.
    pub(crate) fn reset_on_close(&mut self) {
        if let Channel::Multiplexed(stream) = &mut self.channel {
            stream.reset();
        }
        if let Some(socket) = self.socket() {
            socket.reset_on_close();
        }
    }

    /// Discards the bytes that a client has not read, where the system would keep them for as long
    /// as the client wants. The transport can then no longer be used.
    pub(crate) fn disconnect_pipe(&mut self) {
        if let Some(socket) = self.socket() {
            socket.disconnect_pipe();
        }
    }
}
