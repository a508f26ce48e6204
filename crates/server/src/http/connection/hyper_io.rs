//! The adapter through which hyper reads from and writes to a connection's transport. Each read or
//! write also updates the connection's activity record, from which the deadlines are checked.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::ReadBuf;

use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::client_task;
use crate::http::connection::http_connection::HttpConnection;

/// The adapter through which hyper reads from and writes to a connection's transport.
#[derive(Debug)]
pub(crate) struct HyperIo {
    connection: Rc<HttpConnection>,
    /// The bytes that a previous hyper instance read from the connection but did not parse. The
    /// current instance reads them first.
    replay: Bytes,
    /// The number of bytes of `replay` that the current hyper instance has read.
    replayed: usize,
}

impl HyperIo {
    pub(crate) fn new(connection: &Rc<HttpConnection>, replay: Bytes) -> HyperIo {
        HyperIo { connection: Rc::clone(connection), replay, replayed: 0 }
    }

    /// Returns all bytes that were received from the client but not parsed by hyper. `read`
    /// contains the unparsed bytes from hyper's own buffer.
    pub(crate) fn unparsed(self, read: Bytes) -> Bytes {
        if self.replay.is_empty() {
            return read;
        }
        // hyper may have been dropped before it read all bytes after the request.
        self.replay.slice(self.replayed - read.len()..)
    }
}

/// Returns true if `bytes` consists only of line ends, which a server ignores before a request line
/// (RFC 9112, 2.2).
fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// Returns `read`, the bytes received from a client, without the blank lines at its beginning.
pub(crate) fn without_blank_lines(read: &Bytes) -> Bytes {
    let blank = read.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    read.slice(blank..)
}

impl Read for HyperIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.replay.is_empty() {
            if self.replayed == 0 {
                self.connection.keep_head_start(&self.replay);
            }
            let rest = &self.replay[self.replayed..];
            let take = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..take]);
            self.replayed += take;
            if self.replayed == self.replay.len() {
                self.replay = Bytes::new();
            }
            return Poll::Ready(Ok(()));
        }
        // hyper reads a head into one buffer, and `buffer` is its unfilled part.
        let mut size = self.connection.activity.head_bytes() + buffer.remaining();
        if buffer.remaining() > UNCHARGED_BYTES {
            // A buffer that has grown may still have the bytes before the unfilled part, although
            // they were parsed, or a head may keep an earlier buffer alive.
            size += buffer.remaining();
        }
        if !self.connection.charge_buffer(size) {
            return Poll::Pending;
        }
        // SAFETY: the unfilled part of the cursor is only written to, by the read, which
        // initialises all bytes that it counts.
        let mut unfilled = ReadBuf::uninit(unsafe { buffer.as_mut() });
        let polled = self.connection.transport.borrow_mut().poll_read_buf(cx, &mut unfilled);
        let n = unfilled.filled().len();
        let read = polled.map_ok(|()| n);
        if n > 0 {
            self.connection.keep_head_start(unfilled.filled());
        }
        if n > 0 && self.connection.is_between_requests() && is_blank(unfilled.filled()) {
            self.connection.on_blank_lines(n);
        } else {
            self.connection.on_read(&read);
        }
        ready!(read)?;
        // SAFETY: the read has initialised `n` bytes of the unfilled part.
        unsafe { buffer.advance(n) };
        Poll::Ready(Ok(()))
    }
}

impl Write for HyperIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.connection.suppress_hyper_error() {
            return Poll::Ready(Ok(buffers.iter().map(|buffer| buffer.len()).sum()));
        }
        ready!(client_task::poll_may_write(cx));
        self.connection.poll_write(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.connection.poll_flush(cx))?;
        self.connection.on_all_written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
