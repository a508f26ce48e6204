//! A stream that is served, whatever becomes of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::session::Http2Session;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{CloseState, HttpConnection};

/// Bytes that are handed over at once, so that streams alternate: with the head of their frame (RFC 9113, 4.1) one record of TLS. A whole
/// 16 KiB would leave nine bytes for a record, and a system call, of their own.
pub(super) const MAX_SEND: usize = (16 << 10) - 9;

/// A stream that is served: everything is given back when this is dropped, also when its task panics, or ends with the thread.
pub(super) struct StreamGuard {
    pub(super) connection: Rc<HttpConnection>,
    pub(super) session: Rc<Http2Session>,
    pub(super) stream: Rc<HttpConnection>,
    /// The number of the stream (RFC 9113, 5.1.1).
    pub(super) stream_id: u32,
    /// Whether its whole reply has been handed over.
    pub(super) is_response_sent: Cell<bool>,
    /// Whether it came to nothing.
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
    /// Has the system keep the connection for so long while its peer takes nothing.
    pub(super) fn set_stall_timeout(&self, time: Duration) {
        self.connection.transport.borrow().set_for_streaming(time);
    }
}
