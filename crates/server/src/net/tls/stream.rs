//! TLS over a socket, by rustls's buffered API: bytes go in and out as over the socket itself.
//!
//! rustls does no I/O. Records are read into its buffer (4 KiB, and up to 18 while a record is not whole) and opened there;
//! what is written is sealed into its own, up to [`WRITE_BYTES`], and leaves from there.

use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{ServerConfig, ServerConnection};
use tokio::io::ReadBuf;

use super::challenges::ACME_TLS;
use crate::net::socket::Socket;

/// Bytes that are sealed before they have to leave: one whole record (RFC 8446, 5.1).
const WRITE_BYTES: usize = 16 << 10;

/// What a connection holds for TLS at the most, beside what it holds in the clear: a record that is being read with what was
/// in the one before it, and one that is being written.
pub(crate) const TLS_BYTES: usize = 48 << 10;

/// The name of HTTP/2 over TLS (RFC 9113, 3.2).
pub(super) const HTTP2: &[u8] = b"h2";

/// How the first bytes of a connection were answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeResult {
    /// The handshake is done.
    Complete,
    /// They are no TLS but the beginning of a request: the stream is as its socket from now on.
    PlaintextHttp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has been read.
    New,
    Handshake,
    Open,
    /// Not TLS: what is read and written is the socket's.
    Plaintext,
    /// The peer has broken the protocol, and was warned_at: what it sends is thrown away by whoever reads it.
    Failed,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TlsStream {
    tls: ServerConnection,
    state: State,
    /// Bytes that have been opened and not been read.
    plaintext_bytes: usize,
    /// Bytes that have been taken to be written, and of which the socket has not taken all.
    unsent: usize,
    /// Whether the peer has said that it sends no more.
    is_read_closed: bool,
    socket: Socket,
}

impl TlsStream {
    pub(crate) fn new(config: Arc<ServerConfig>, socket: Socket) -> io::Result<TlsStream> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(WRITE_BYTES));
        Ok(TlsStream {
            tls,
            state: State::New,
            plaintext_bytes: 0,
            unsent: 0,
            is_read_closed: false,
            socket,
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The peer's certificate in DER, when it was asked for one and gave it.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls.peer_certificates().and_then(|chain| chain.first()).map(AsRef::as_ref)
    }

    /// Whether HTTP/2 has been agreed on (RFC 7301).
    pub(crate) fn is_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(HTTP2)
    }

    /// Whether the peer came to see a certificate and no more (RFC 8737).
    pub(crate) fn is_challenge(&self) -> bool {
        self.tls.alpn_protocol() == Some(ACME_TLS)
    }

    /// The name that the client asked for (RFC 6066, 3).
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.tls.server_name()
    }

    /// Drives the handshake. An error has been said to the peer, as far as it can be.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<HandshakeResult>> {
        while self.state == State::New {
            ready!(self.socket.poll_read_ready(cx))?;
            // Before rustls sees it: its answer would be on its way.
            match self.socket.try_peek() {
                Ok(Some(byte)) if byte.is_ascii_uppercase() => self.state = State::Plaintext,
                Ok(Some(_)) => self.state = State::Handshake,
                Ok(None) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        while self.state == State::Handshake {
            ready!(self.poll_flush(cx))?;
            if !self.tls.is_handshaking() {
                self.state = State::Open;
            } else if !ready!(self.poll_decrypt(cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(if self.state == State::Plaintext {
            HandshakeResult::PlaintextHttp
        } else {
            HandshakeResult::Complete
        }))
    }

    /// Whether there is something to read, or to open.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.plaintext_bytes > 0 || self.is_read_closed {
            Poll::Ready(Ok(()))
        } else {
            self.socket.poll_read_ready(cx)
        }
    }

    /// Reads what has been opened, or else waits for it. Nothing is read at the peer's end, with `close_notify` or without:
    /// HTTP and WebSockets tell by themselves what was cut off.
    pub(crate) fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if matches!(self.state, State::Plaintext | State::Failed) {
            return self.socket.poll_read_buf(cx, buffer);
        }
        while self.plaintext_bytes == 0 {
            if !ready!(self.poll_decrypt(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
        let mut reader = self.tls.reader();
        while self.plaintext_bytes > 0 && buffer.remaining() > 0 {
            let chunk = reader.fill_buf()?;
            let n = chunk.len().min(buffer.remaining());
            buffer.put_slice(&chunk[..n]);
            reader.consume(n);
            self.plaintext_bytes -= n;
        }
        Poll::Ready(Ok(()))
    }

    /// As [`Transport::try_peek`](crate::net::transport::Transport::try_peek).
    pub(crate) fn try_peek(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        while self.plaintext_bytes == 0 {
            match self.poll_decrypt(cx) {
                Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
                Poll::Ready(is_more) => {
                    if !is_more? {
                        return Ok(0);
                    }
                }
            }
        }
        Ok(1)
    }

    /// Reads from the socket once and opens what is whole; `false` at the end.
    fn poll_decrypt(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.is_read_closed {
            return Poll::Ready(Ok(false));
        }
        match self.tls.read_tls(&mut WithWaker { socket: &mut self.socket, cx }) {
            Ok(0) => {
                self.is_read_closed = true;
                return Poll::Ready(Ok(false));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        match self.tls.process_new_packets() {
            Ok(state) => {
                self.plaintext_bytes = state.plaintext_bytes_to_read();
                self.is_read_closed = state.peer_has_closed() && self.plaintext_bytes == 0;
                Poll::Ready(Ok(!self.is_read_closed))
            }
            Err(error) => {
                // The alert that tells the peer. What it does not take now is lost.
                let _ = self.tls.write_tls(&mut WithoutWaiting(&self.socket));
                self.state = State::Failed;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)))
            }
        }
    }

    /// Seals a record when the one before has left, and sends what the socket takes of it.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.state == State::Plaintext {
            return self.socket.poll_write_vectored(cx, buffers);
        }
        if self.state == State::Failed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_flush(cx))?;
        let n = self.tls.writer().write_vectored(buffers)?;
        self.unsent += n;
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // It has been taken: the next write, or `poll_flush`, sees to the rest.
            _ => Poll::Ready(Ok(n)),
        }
    }

    /// Seals a piece as a whole when what was before it has left, so that its records leave in one system call, and sends what the socket
    /// takes of it.
    pub(crate) fn poll_write_chunk(
        &mut self,
        cx: &mut Context<'_>,
        piece: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.tls.set_buffer_limit(None);
        let written = self.poll_write_vectored(cx, &[IoSlice::new(piece)]);
        self.tls.set_buffer_limit(Some(WRITE_BYTES));
        written
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut WithWaker { socket: &mut self.socket, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => self.unsent = self.unsent.saturating_sub(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.unsent = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes what fits the socket's buffer; what does not is lost.
    pub(crate) fn try_write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.state == State::Plaintext {
            return self.socket.try_write_vectored(buffers);
        }
        if self.state != State::Open {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let n = self.tls.writer().write_vectored(buffers)?;
        self.try_flush();
        Ok(n)
    }

    /// Sends `close_notify`. A peer that has not read what was sent before does not get it: to it, what follows is a cut.
    pub(crate) fn send_close_notify(&mut self) {
        if self.state == State::Open {
            self.tls.send_close_notify();
            self.try_flush();
        }
    }

    /// Sends what the socket takes without waiting.
    pub(crate) fn try_flush(&mut self) {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut WithoutWaiting(&self.socket)) {
                Ok(n @ 1..) => self.unsent = self.unsent.saturating_sub(n),
                _ => return,
            }
        }
        self.unsent = 0;
    }

    pub(crate) fn unsent(&self) -> Option<u32> {
        let waiting = u32::try_from(self.unsent).unwrap_or(u32::MAX);
        self.socket.unsent().map(|bytes| bytes.saturating_add(waiting))
    }
}

/// A socket whose task is woken when it can be read or written again.
struct WithWaker<'a, 'b> {
    socket: &'a mut Socket,
    cx: &'a mut Context<'b>,
}

/// What is pending is an error to those who do not wait.
fn pending_to_would_block<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl io::Read for WithWaker<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        pending_to_would_block(self.socket.poll_read_buf(self.cx, &mut buffer))?;
        Ok(buffer.filled().len())
    }
}

impl io::Write for WithWaker<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        pending_to_would_block(self.socket.poll_write_vectored(self.cx, buffers))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that takes what it can.
struct WithoutWaiting<'a>(&'a Socket);

impl io::Write for WithoutWaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
