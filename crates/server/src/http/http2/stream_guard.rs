//! A guard that, when dropped, ends an HTTP/2 stream and releases its resources.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::connection_state::Http2State;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{CloseState, HttpConnection};

/// The maximum number of response bytes that a stream passes to h2 at once, so that the streams of
/// a connection take turns. Together with the frame header of nine bytes (RFC 9113, 4.1), they fill
/// exactly one TLS record. A longer frame would need another record and another system call.
pub(super) const MAX_SEND: usize = (16 << 10) - 9;

/// A guard for an HTTP/2 stream that is being served. Dropping it ends the stream and releases its
/// request and memory, even if the task panics or the I/O thread ends.
pub(super) struct StreamGuard {
    pub(super) connection: Rc<HttpConnection>,
    pub(super) state: Rc<Http2State>,
    pub(super) stream: Rc<HttpConnection>,
    /// The HTTP/2 stream identifier (RFC 9113, 5.1.1).
    pub(super) stream_id: u32,
    /// True once the complete response of the stream has been passed to h2.
    pub(super) is_response_sent: Cell<bool>,
    /// True if the client reset the stream, so that the server's work for it was wasted.
    pub(super) is_wasted: bool,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.stream.release_request();
        self.state.on_stream_done(self.stream_id);
        if self.is_wasted {
            self.state.count_wasted(self.stream.peer_of_request());
        }
        if self.state.on_stream_closed(self.stream.key.get(), self.is_response_sent.get()) {
            self.connection.enter(Phase::Idle);
        }
        if self.is_wasted || self.connection.close_state.get() != CloseState::Open {
            self.connection.wake_task();
        }
    }
}

impl StreamGuard {
    /// Sets how long the operating system keeps the connection open while the client acknowledges
    /// no bytes.
    pub(super) fn set_stall_timeout(&self, time: Duration) {
        self.connection.transport.borrow().set_for_streaming(time);
    }
}
