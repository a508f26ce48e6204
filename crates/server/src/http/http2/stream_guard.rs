//! A guard that ends an HTTP/2 stream.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::session::Http2Session;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{CloseState, HttpConnection};

/// The maximum number of bytes that are passed to h2 at once, so that streams take turns. Together
/// with a frame header (RFC 9113, 4.1) they fill exactly one TLS record; nine more bytes would need
/// a record and a system call of their own.
pub(super) const MAX_SEND: usize = (16 << 10) - 9;

/// A stream that is being served. Dropping it releases everything, even if the task panics or the
/// I/O thread ends.
pub(super) struct StreamGuard {
    pub(super) connection: Rc<HttpConnection>,
    pub(super) session: Rc<Http2Session>,
    pub(super) stream: Rc<HttpConnection>,
    /// The stream identifier (RFC 9113, 5.1.1).
    pub(super) stream_id: u32,
    /// True once the complete response has been passed to h2.
    pub(super) is_response_sent: Cell<bool>,
    /// True if the client reset the stream, so that the work for it was wasted.
    pub(super) is_wasted: bool,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.stream.release_request();
        self.session.on_stream_done(self.stream_id);
        if self.is_wasted {
            self.session.count_wasted();
        }
        if self.session.on_stream_closed(self.stream.key.get(), self.is_response_sent.get()) {
            self.connection.enter(Phase::Idle);
        }
        if self.is_wasted || self.connection.close_state.get() != CloseState::Open {
            self.connection.wake_task();
        }
    }
}

impl StreamGuard {
    /// Sets for how long the system keeps the connection while the client acknowledges nothing.
    pub(super) fn set_stall_timeout(&self, time: Duration) {
        self.connection.transport.borrow().set_for_streaming(time);
    }
}
