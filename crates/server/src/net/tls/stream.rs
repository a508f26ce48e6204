//! TLS streams over a socket. A TLS stream has the same methods as the socket itself.
//!
//! rustls performs no I/O, so this module moves the bytes between the socket and the buffers of
//! rustls. The input buffer has 4 KiB, or up to 18 KiB for an incomplete TLS record. Records are
//! decrypted in this buffer. Written data is encrypted into the output buffer of up to
//! [`WRITE_BYTES`], and sent from there.

use std::io::{self, BufRead as _, IoSlice, Write as _};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{ServerConfig, ServerConnection};
use tokio::io::ReadBuf;

use super::challenges::ACME_TLS;
use super::records::Records;
use crate::net::socket::Socket;

/// The maximum number of encrypted bytes that a connection buffers until the socket accepts them.
/// It is one full TLS record (RFC 8446, 5.1).
const WRITE_BYTES: usize = 16 << 10;

/// The bytes by which the input buffer of rustls exceeds its usual size of 4 KiB at most, while a
/// record is incomplete. The buffer grows by doubling, up to the size of the largest record.
const INCOMPLETE_RECORD_BYTES: usize = 28 << 10;

/// The ALPN protocol name of HTTP/2 (RFC 9113, 3.2).
pub(super) const HTTP2: &[u8] = b"h2";

/// The result of a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeResult {
    /// The TLS handshake is complete.
    Complete,
    /// The client has sent plaintext HTTP instead of a TLS handshake. The stream is used without
    /// TLS from now on.
    PlaintextHttp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The initial state of a TLS stream, before the first byte was read.
    New,
    Handshake,
    Open,
    /// The client does not use TLS. Reads and writes go directly to the socket.
    Plaintext,
    /// The peer has violated the TLS protocol and has been sent an alert. Further input is not
    /// decrypted, but discarded.
    Failed,
}

/// A server's TLS stream over a socket.
#[derive(Debug)]
pub(crate) struct TlsStream {
    tls: ServerConnection,
    state: State,
    /// The number of decrypted bytes that the server has not read yet.
    plaintext_bytes: usize,
    records: Records,
    /// The number of bytes that were written to the TLS stream, but whose encrypted form the socket
    /// has not accepted yet.
    unsent: usize,
    /// True if the peer sends no more data, with or without a TLS `close_notify` alert.
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
            records: Records::default(),
            unsent: 0,
            is_read_closed: false,
            socket,
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the client's certificate in DER, if the server has requested one and the client has
    /// sent it.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls.peer_certificates().and_then(|chain| chain.first()).map(AsRef::as_ref)
    }

    /// Returns true if HTTP/2 was negotiated by ALPN (RFC 7301).
    pub(crate) fn is_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(HTTP2)
    }

    /// Returns true if this is the connection of an ACME authority, which only wants to see a
    /// challenge certificate (RFC 8737).
    pub(crate) fn is_challenge(&self) -> bool {
        self.tls.alpn_protocol() == Some(ACME_TLS)
    }

    /// Returns the server name that the client has requested in its TLS handshake (RFC 6066, 3).
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.tls.server_name()
    }

    /// Performs the TLS handshake until it is complete or fails. If it fails, a TLS alert is sent
    /// to the peer if possible.
    pub(crate) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<HandshakeResult>> {
        while self.state == State::New {
            ready!(self.socket.poll_read_ready(cx))?;
            // The first byte is checked before rustls reads it, because rustls would send an alert.
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

    /// Waits until there are decrypted bytes to read, or input from the socket to decrypt.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.plaintext_bytes > 0 || self.is_read_closed {
            Poll::Ready(Ok(()))
        } else {
            self.socket.poll_read_ready(cx)
        }
    }

    /// Reads decrypted bytes, or waits for them. Reads nothing at the end of the stream. A missing
    /// `close_notify` alert is no error, because HTTP and WebSockets detect truncation themselves.
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

    /// Checks whether there is decrypted input, without consuming it. Returns 0 if the peer sends
    /// no more data, a positive number if there is input, and otherwise the error `WouldBlock`.
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

    /// Reads from the socket once, and decrypts all complete TLS records. Returns false if the peer
    /// sends no more data.
    fn poll_decrypt(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.is_read_closed {
            return Poll::Ready(Ok(false));
        }
        let TlsStream { socket, records, .. } = self;
        match self.tls.read_tls(&mut WithWaker { socket, records, cx }) {
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
                if self.state != State::Open {
                    self.records.on_handshake();
                } else if !self.records.on_decrypted(self.plaintext_bytes) {
                    self.state = State::Failed;
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                self.is_read_closed = state.peer_has_closed() && self.plaintext_bytes == 0;
                Poll::Ready(Ok(!self.is_read_closed))
            }
            Err(error) => {
                // Sends the alert. If the socket does not accept it now, the alert is lost.
                let _ = self.tls.write_tls(&mut WithoutWaiting(&self.socket));
                self.state = State::Failed;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)))
            }
        }
    }

    /// Encrypts data as one TLS record after the previous record has been sent, and sends as much
    /// of the record as the socket accepts. Returns the number of bytes that were encrypted.
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
            // The bytes have been accepted. The next write, or `poll_flush`, sends the rest.
            _ => Poll::Ready(Ok(n)),
        }
    }

    /// Encrypts a whole chunk of data, after earlier data have been sent. All TLS records of the
    /// chunk are sent in one system call, as far as the socket accepts them. Returns the number of
    /// bytes that were encrypted.
    pub(crate) fn poll_write_chunk(
        &mut self,
        cx: &mut Context<'_>,
        chunk: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.tls.set_buffer_limit(None);
        let written = self.poll_write_vectored(cx, &[IoSlice::new(chunk)]);
        self.tls.set_buffer_limit(Some(WRITE_BYTES));
        written
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let TlsStream { socket, records, .. } = self;
            match self.tls.write_tls(&mut WithWaker { socket, records, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => self.unsent = self.unsent.saturating_sub(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.unsent = 0;
        Poll::Ready(Ok(()))
    }

    /// Encrypts as many bytes as fit into the output buffer, and sends what the socket accepts
    /// without waiting. Encrypted bytes that the socket does not accept stay in the buffer until
    /// the next write or flush. Returns the number of bytes that were encrypted.
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

    /// Sends the TLS alert `close_notify`, which ends the stream. If the peer has not read earlier
    /// data, the alert may not be sent, and the peer sees a truncated stream.
    pub(crate) fn send_close_notify(&mut self) {
        if self.state == State::Open {
            self.tls.send_close_notify();
            self.try_flush();
        }
    }

    /// Sends as many encrypted bytes as the socket accepts without waiting.
    pub(crate) fn try_flush(&mut self) {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut WithoutWaiting(&self.socket)) {
                Ok(n @ 1..) => self.unsent = self.unsent.saturating_sub(n),
                _ => return,
            }
        }
        self.unsent = 0;
    }

    /// Returns the number of bytes that rustls may hold of the peer's input, in addition to its
    /// input buffer of the usual size.
    pub(crate) fn held_input(&self) -> usize {
        if self.records.are_incomplete() || self.plaintext_bytes > 0 {
            INCOMPLETE_RECORD_BYTES + self.plaintext_bytes
        } else {
            0
        }
    }

    pub(crate) fn unsent(&self) -> Option<u32> {
        let waiting = u32::try_from(self.unsent).unwrap_or(u32::MAX);
        self.socket.unsent().map(|bytes| bytes.saturating_add(waiting))
    }
}

/// A socket adapter through which rustls reads and writes without blocking. If the socket is not
/// ready, the current task is woken as soon as it is.
struct WithWaker<'a, 'b> {
    socket: &'a mut Socket,
    records: &'a mut Records,
    cx: &'a mut Context<'b>,
}

/// Converts `Poll::Pending` to the error `WouldBlock`, which the synchronous I/O traits use.
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
        self.records.follow(buffer.filled());
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

/// A socket adapter through which rustls reads and writes without waiting. It wakes no task when
/// the socket becomes ready later.
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
