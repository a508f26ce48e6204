//! A stream that is served, whatever becomes of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::session::Http2Session;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{End, HttpConnection};

/// Bytes that are handed over at once, so that streams alternate: with the head of their frame (RFC 9113, 4.1) one record of TLS. A whole
/// 16 KiB would leave nine bytes for a record, and a system call, of their own.
pub(super) const TURN: usize = (16 << 10) - 9;

/// A stream that is served: everything is given back when this is dropped, also when its task panics, or ends with the thread.
pub(super) struct StreamGuard {
    pub(super) connection: Rc<HttpConnection>,
    pub(super) session: Rc<Http2Session>,
    pub(super) stream: Rc<HttpConnection>,
    /// The number of the stream (RFC 9113, 5.1.1).
    pub(super) number: u32,
    /// Whether its whole reply has been handed over.
    pub(super) is_answered: Cell<bool>,
    /// Whether it came to nothing.
    pub(super) is_in_vain: bool,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.stream.settle();
        self.session.forget(self.number);
        if self.is_in_vain {
            self.session.was_in_vain();
        }
        if self.session.close(self.stream.key.get(), self.is_answered.get()) {
            self.connection.enter(Phase::Idle);
        }
        if self.is_in_vain || self.connection.end.get() != End::No {
            self.connection.poll_again();
        }
    }
}

impl StreamGuard {
    /// Has the system keep the connection for so long while its peer takes nothing.
    pub(super) fn keep_for(&self, time: Duration) {
        self.connection.transport.borrow().set_for_streaming(time);
    }
}
