//! The adapter through which h2 reads from and writes to a connection's transport.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_state::Http2State;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::connections::client_task;
use crate::http::connection::http_connection::HttpConnection;

/// The adapter through which h2 reads from and writes to a connection's transport.
pub(super) struct H2Io {
    pub(super) connection: Rc<HttpConnection>,
    pub(super) state: Rc<Http2State>,
    /// True if the memory for the client's bytes was refused, so that h2 has not got all of them.
    /// It must not get later ones either.
    is_over: bool,
}

impl H2Io {
    pub(super) fn new(connection: Rc<HttpConnection>, state: Rc<Http2State>) -> H2Io {
        H2Io { connection, state, is_over: false }
    }
}

impl AsyncRead for H2Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let H2Io { connection, state, is_over } = self.get_mut();
        if *is_over {
            return Poll::Pending;
        }
        loop {
            if state.take_rewritten(buffer) {
                return Poll::Ready(Ok(()));
            }
            if state.has_read_enough() {
                client_task::yield_now(cx);
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(connection.transport.borrow_mut().poll_read_buf(cx, buffer))?;
            let read = &buffer.filled()[before..];
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = state.follow(read);
            buffer.set_filled(before + kept);
            if !connection.charge_http2_buffers(UNCHARGED_BYTES + state.buffer_bytes()) {
                *is_over = true;
                return Poll::Pending;
            }
            if kept > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for H2Io {
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
        // A connection that ends at once is polled no more, and writes what the socket accepts.
        if !self.connection.close_state.get().is_immediate() {
            ready!(client_task::poll_may_write(cx));
        }
        let written = self.connection.poll_write(cx, buffers);
        self.state.on_written(written.is_pending(), false);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.connection.poll_flush(cx);
        self.state.on_written(flushed.is_pending(), true);
        flushed
    }

    /// Flushes the transport without closing it, because the server itself sends the FIN when it
    /// closes the connection.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
