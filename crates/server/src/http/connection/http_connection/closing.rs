//! Closing a connection, and detecting that its client has disconnected.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rookery_exchange::{Charge, ExchangeStatus, StreamEnd};

use super::HttpConnection;
use crate::connections::admission::bytes_in_use;
use crate::connections::table::TableEntry as _;
use crate::http::connection::activity::Phase;
use crate::net::transport::Transport;
use crate::rejection::Rejection;

/// The decision whether a connection is closed with a TCP reset, which shows the client that its
/// response is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResetMode {
    None,
    /// The connection is reset after the client's operating system has acknowledged all written
    /// bytes, or after the close timeout.
    AfterWrite,
    Now,
}

/// The decision whether and when a connection is closed, and with which error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseState {
    /// The connection stays open.
    Open,
    /// The connection closes after the response to the current request.
    AfterResponse,
    /// The connection closes at once, without an error response.
    Now,
    /// The connection closes with a 408 response, because the client sent the request head too
    /// slowly.
    HeadTimeout,
    /// The connection closes with a 408 response, because the client sent the request body too
    /// slowly.
    BodyTimeout,
    /// The connection closes with a 503 response, because the server's memory budget is exhausted.
    Overload,
    /// The connection closes with a 503 response, because a new connection needs its slot.
    Evicted,
}

/// The reason why the server stopped waiting for the application's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitAborted {
    /// The client disconnected.
    Disconnected,
    /// The application took longer for its response than the request timeout.
    TimedOut,
    /// The request waited for a worker, and was evicted because another client needs its memory.
    Evicted,
}

impl CloseState {
    /// Returns true if the connection must close now. Returns false if it stays open or closes
    /// after its response.
    pub(crate) fn is_immediate(self) -> bool {
        !matches!(self, CloseState::Open | CloseState::AfterResponse)
    }
}

/// The number of TCP keep-alive probes that the server sends within an idle timeout after a client
/// has sent a FIN. The probes reveal whether the client has disconnected.
const PROBES_PER_IDLE_TIMEOUT: u32 = 8;
/// The shortest interval between two TCP keep-alive probes, which limits the network load.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between two TCP keep-alive probes, so that a disconnect is detected soon.
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(15);

impl HttpConnection {
    /// Returns true if the response must tell the client (`Connection: close`) that the connection
    /// closes after it.
    pub(crate) fn closes_after_response(&self) -> bool {
        self.close_state.get() != CloseState::Open || self.has_unread_input.get()
    }

    /// Returns true if the connection closes without a response because the client is too slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.close_state.get() == CloseState::Now
            && matches!(self.end_reason.get(), Some(StreamEnd::Timeout | StreamEnd::Slow))
    }

    /// Returns what the access log shows for a request whose response has not begun, if the server
    /// ends the request now: the status and the length of the error response, and the reason if no
    /// response is sent. Returns `None` if the client has disconnected.
    pub(crate) fn server_end(&self) -> Option<(u16, usize, Option<StreamEnd>)> {
        let sent = |it: Rejection| Some((it.status(), it.text().len(), None));
        match (self.close_state.get(), self.end_reason.get()) {
            (CloseState::BodyTimeout, _) => sent(Rejection::BodyTimeout),
            (CloseState::Overload, _) => sent(Rejection::Overload),
            (CloseState::Evicted, _) => sent(Rejection::TooManyConnections),
            // The front end of several workers responds with this status if a worker ends.
            (_, Some(StreamEnd::Stop)) => Some((502, 0, Some(StreamEnd::Stop))),
            _ => None,
        }
    }

    /// Records how the connection must close, and wakes the connection's task, which closes it.
    pub(super) fn begin_close(&self, state: CloseState) {
        self.close_state.set(state);
        self.wake();
    }

    /// Closes the connection because the client is too slow. Sends a 408 response if no response
    /// has begun and the client has sent something.
    pub(super) fn time_out(&self) {
        self.set_end_reason(StreamEnd::Timeout);
        self.begin_close(match self.activity.phase() {
            _ if !self.activity.can_send_rejection() => CloseState::Now,
            Phase::Head => CloseState::HeadTimeout,
            _ => CloseState::BodyTimeout,
        });
    }

    /// Closes the connection because the memory budget is exhausted. Sends a 503 response if no
    /// response has begun and the client has sent something.
    pub(super) fn close_for_overload(&self) {
        self.close_with(CloseState::Overload);
    }

    /// Closes the connection with the error response of `state` if no response has begun and the
    /// client has sent something, and otherwise without one.
    pub(super) fn close_with(&self, state: CloseState) {
        self.set_end_reason(StreamEnd::Slow);
        let is_possible = self.activity.can_send_rejection();
        self.begin_close(if is_possible { state } else { CloseState::Now });
    }

    /// Releases all memory that was charged for the connection's request and response, after hyper
    /// was dropped. The charge for the connection itself remains.
    pub(crate) fn release_request(&self) {
        if let Some(stream) = &*self.response_stream.borrow() {
            self.reset_mode.set(if stream.is_cut() {
                ResetMode::AfterWrite
            } else {
                ResetMode::Now
            });
        }
        let streamed =
            self.response_stream.borrow().as_ref().and_then(|stream| stream.end_reason());
        self.end_response_stream(StreamEnd::Client);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            // These parts still exist, so the last byte of the response has not been written.
            let reason = streamed.or(self.end_reason.get()).unwrap_or(StreamEnd::Client);
            parts.pending_record.abort(reason);
            if let Some(span) = &mut parts.span {
                span.abort(reason);
            }
        }
        self.finish_pending_release();
        self.set_open_files(&self.activity.request_files, 0);
        self.charge.set(bytes_in_use(self.has_tls()).min(self.charge.bytes()));
        if let (Some(files), Some(parts)) =
            (self.sendfile_queue.take(), &mut *self.flushing.borrow_mut())
        {
            // hyper was given these bytes, so the access log already counts them as sent.
            parts.pending_record.take_back(files.left());
        }
        self.end_flush();
    }

    /// If this connection was closed to free memory, informs the connection table that the memory
    /// has been freed.
    pub(crate) fn finish_pending_release(&self) {
        if let Some((share, held)) = self.pending_release.take() {
            self.shared.connections.finish_pending_release(share, held);
        }
    }

    /// Returns the connection's transport and memory charge for use by a WebSocket. Returns `None`
    /// if other references to the connection exist.
    pub(crate) fn into_transport(self: Rc<Self>) -> Option<(Transport, Charge)> {
        let connection = Rc::into_inner(self)?;
        Some((connection.transport.into_inner(), connection.charge))
    }

    /// Returns true if the client has reset the connection or, on systems that report it, has
    /// closed both directions. Makes a system call only if the transport is readable.
    pub(crate) fn detect_disconnect(&self, cx: &mut Context<'_>) -> bool {
        let mut transport = self.transport.borrow_mut();
        while self.is_watched.get() {
            match transport.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) => match transport.try_peek(cx) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return true,
                    // The bytes belong to the next request, which must wait for the response to
                    // this one.
                    Ok(1..) => self.is_watched.set(false),
                    Ok(0) => {
                        self.is_watched.set(false);
                        self.is_half_closed.set(true);
                        if transport.is_hung_up() {
                            return true;
                        }
                        // A keep-alive probe tells a disconnected client from a half-closed one.
                        // The system of a disconnected client answers with a reset once it has
                        // forgotten the connection, which takes a minute on Linux; a half-closed
                        // client acknowledges the probe.
                        let idle = self.shared.connections.limits().idle_timeout;
                        transport.enable_tcp_keepalive(
                            (idle / PROBES_PER_IDLE_TIMEOUT)
                                .clamp(MIN_PROBE_INTERVAL, MAX_PROBE_INTERVAL),
                        );
                    }
                },
            }
        }
        self.is_disconnected.get()
    }

    /// Returns true if the client has sent a FIN and the application counts this as a disconnect.
    /// Makes a system call if unread bytes precede the FIN.
    pub(crate) fn counts_as_disconnected(&self) -> bool {
        let drops = self.shared.dispatch.application.drops_half_closed();
        drops && (self.is_half_closed.get() || self.has_unread_fin())
    }

    /// Begins to wait for the application's response to the request with this status.
    pub(crate) fn begin_wait(&self, status: Arc<ExchangeStatus>) {
        self.pending_status.replace(Some(status));
    }

    /// Ends the wait for the application's response, and returns the status of the request. If the
    /// request was evicted, the memory of its body is released now.
    pub(crate) fn end_wait(&self) -> Option<Arc<ExchangeStatus>> {
        self.finish_pending_release();
        self.pending_status.take()
    }

    /// Returns true if the current request waits for a worker, so that the application has received
    /// no part of it.
    pub(crate) fn is_request_waiting(&self) -> bool {
        self.pending_status.borrow().as_ref().is_some_and(|status| status.is_waiting())
    }

    /// Returns true if the client has half-closed the connection (FIN) after bytes that the server
    /// has not read yet. Makes a system call, because no event reports a FIN behind unread bytes.
    pub(super) fn has_unread_fin(&self) -> bool {
        !self.is_watched.get()
            && !self.is_half_closed.get()
            && self.transport.borrow().has_peer_half_closed()
    }
}
