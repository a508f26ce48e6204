//! How a connection ends, and whether its peer has gone.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rookery_exchange::{Charge, StreamEnd};

use super::{HttpConnection, connection_bytes};
use crate::connections::table::TableEntry as _;
use crate::http::connection::activity::Phase;
use crate::net::transport::Transport;

/// How a connection ends whose peer has a part of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResetMode {
    None,
    /// When the peer's system has what was written, or the time of a close is over.
    AfterWrite,
    Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseState {
    Open,
    AfterResponse,
    Now,
    /// The head was too slow.
    HeadTimeout,
    /// The body was.
    BodyTimeout,
    /// There is no room for the request.
    Overload,
}

impl CloseState {
    pub(crate) fn is_immediate(self) -> bool {
        !matches!(self, CloseState::Open | CloseState::AfterResponse)
    }
}

/// A peer that has sent a FIN is probed this often within the time for being idle, with these bounds: seldom enough
/// for the network, and often enough for an application that works for minutes.
const PROBES_PER_IDLE_TIMEOUT: u32 = 8;
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(1);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(15);

impl HttpConnection {
    /// Whether a reply must tell the client that the connection ends with it.
    pub(crate) fn closes_after_response(&self) -> bool {
        self.close_state.get() != CloseState::Open
            || self.has_unread_input.get()
            || self.is_draining.get()
    }

    /// Ends the connection at once if `end` says so, and has its task see to it.
    pub(super) fn begin_close(&self, state: CloseState) {
        self.close_state.set(state);
        self.wake();
    }

    /// Ends what is too slow: with 408 where no answer has begun and the peer has sent something.
    pub(super) fn time_out(&self) {
        self.set_end_reason(StreamEnd::Timeout);
        self.begin_close(match self.activity.phase() {
            _ if !self.activity.can_send_rejection() => CloseState::Now,
            Phase::Head => CloseState::HeadTimeout,
            _ => CloseState::BodyTimeout,
        });
    }

    /// Ends the connection for want of room: with 503 where no answer has begun and the peer has sent something.
    pub(super) fn close_for_overload(&self) {
        self.set_end_reason(StreamEnd::Slow);
        self.begin_close(if self.activity.can_send_rejection() {
            CloseState::Overload
        } else {
            CloseState::Now
        });
    }

    /// hyper is gone, and with it the request and the reply: all that was charged beside the connection itself is gone.
    pub(crate) fn release_request(&self) {
        self.end_handshake();
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
            // Had its last byte been written, they would not be here.
            parts
                .pending_record
                .abort(streamed.or(self.end_reason.get()).unwrap_or(StreamEnd::Client));
        }
        self.finish_pending_release();
        self.charge.set(connection_bytes(self.has_tls()).min(self.charge.bytes()));
        if let (Some(files), Some(parts)) =
            (self.sendfile_queue.take(), &mut *self.flushing.borrow_mut())
        {
            // hyper has been told of it, and the log by that.
            parts.pending_record.take_back(files.left());
        }
        self.end_flush();
    }

    /// What it was told to let go of is not waited for any more.
    pub(super) fn finish_pending_release(&self) {
        if let Some((share, held)) = self.pending_release.take() {
            self.shared.connections.finish_pending_release(share, held);
        }
    }

    /// What is left for a WebSocket; `None` while somebody else has the connection.
    pub(crate) fn into_transport(self: Rc<Self>) -> Option<(Transport, Charge)> {
        let connection = Rc::into_inner(self)?;
        Some((connection.transport.into_inner(), connection.charge))
    }

    /// Whether the peer has reset the connection, or closed all of it where that can be told. Costs no system call unless
    /// the transport has something to tell.
    pub(crate) fn detect_disconnect(&self, cx: &mut Context<'_>) -> bool {
        let mut transport = self.transport.borrow_mut();
        while self.is_watched.get() {
            match transport.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) => match transport.try_peek(cx) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return true,
                    // The next request: nothing changes before this one is answered.
                    Ok(1..) => self.is_watched.set(false),
                    Ok(0) => {
                        self.is_watched.set(false);
                        self.is_half_closed.set(true);
                        if transport.is_hung_up() {
                            return true;
                        }
                        // A client that closed has a system that answers a probe with a reset, once it has forgotten
                        // the connection (a minute, with Linux); that of one that still reads says that all is well.
                        let idle = self.shared.connections.limits.idle_time;
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

    /// Whether the peer has sent a FIN, and counts as gone with it while its request waits. A system call where there are bytes before the FIN.
    pub(crate) fn counts_as_disconnected(&self) -> bool {
        let drops = self.shared.dispatch.application.drops_half_closed();
        drops && (self.is_half_closed.get() || self.has_unread_fin())
    }

    /// Whether the application has had its time for the request.
    pub(crate) fn has_request_timed_out(&self) -> bool {
        self.has_request_timed_out.get()
    }

    /// Whether the peer has sent a FIN behind bytes that are not read before the reply has ended: a system call, where
    /// nothing else would tell.
    pub(super) fn has_unread_fin(&self) -> bool {
        !self.is_watched.get()
            && !self.is_half_closed.get()
            && self.transport.borrow().has_peer_half_closed()
    }
}
