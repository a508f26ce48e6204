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
pub(crate) enum Reset {
    No,
    /// When the peer's system has what was written, or the time of a close is over.
    Written,
    Now,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    No,
    AfterReply,
    Now,
    /// The head was too slow.
    HeadTimeout,
    /// The body was.
    BodyTimeout,
    /// There is no room for the request.
    Overload,
}

impl End {
    pub(crate) fn is_now(self) -> bool {
        !matches!(self, End::No | End::AfterReply)
    }
}

/// A peer that has sent a FIN is probed this often within the time for being idle, with these bounds: seldom enough
/// for the network, and often enough for an application that works for minutes.
const PROBES: u32 = 8;
const PROBE_LEAST: Duration = Duration::from_secs(1);
const PROBE_MOST: Duration = Duration::from_secs(15);

impl HttpConnection {
    /// Whether a reply must tell the client that the connection ends with it.
    pub(crate) fn closes_after_reply(&self) -> bool {
        self.end.get() != End::No || self.has_rest.get() || self.retires.get()
    }

    /// Ends the connection at once if `end` says so, and has its task see to it.
    pub(super) fn end(&self, end: End) {
        self.end.set(end);
        self.wake();
    }

    /// Ends what is too slow: with 408 where no answer has begun and the peer has sent something.
    pub(super) fn give_up(&self) {
        self.decide(StreamEnd::Timeout);
        self.end(match self.activity.phase() {
            _ if !self.activity.can_be_answered() => End::Now,
            Phase::Head => End::HeadTimeout,
            _ => End::BodyTimeout,
        });
    }

    /// Ends the connection for want of room: with 503 where no answer has begun and the peer has sent something.
    pub(super) fn overload(&self) {
        self.decide(StreamEnd::Slow);
        self.end(if self.activity.can_be_answered() { End::Overload } else { End::Now });
    }

    /// hyper is gone, and with it the request and the reply: all that was charged beside the connection itself is gone.
    pub(crate) fn settle(&self) {
        self.end_handshake();
        if let Some(stream) = &*self.stream.borrow() {
            self.reset.set(if stream.is_cut() { Reset::Written } else { Reset::Now });
        }
        let streamed = self.stream.borrow().as_ref().and_then(|stream| stream.decided());
        self.end_stream(StreamEnd::Client);
        if let Some(parts) = &mut *self.flushing.borrow_mut() {
            // Had its last byte been written, they would not be here.
            parts
                .pending_record
                .abort(streamed.or(self.departure.get()).unwrap_or(StreamEnd::Client));
        }
        self.has_left();
        self.charge.set(connection_bytes(self.has_tls()).min(self.charge.bytes()));
        if let (Some(files), Some(parts)) = (self.sending.take(), &mut *self.flushing.borrow_mut())
        {
            // hyper has been told of it, and the log by that.
            parts.pending_record.take_back(files.left());
        }
        self.end_flush();
    }

    /// What it was told to let go of is not waited for any more.
    pub(super) fn has_left(&self) {
        if let Some((share, held)) = self.leaving.take() {
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
    pub(crate) fn is_reset(&self, cx: &mut Context<'_>) -> bool {
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
                        transport
                            .enable_tcp_keepalive((idle / PROBES).clamp(PROBE_LEAST, PROBE_MOST));
                    }
                },
            }
        }
        self.has_gone.get()
    }

    /// Whether the peer has sent a FIN, and counts as gone with it while its request waits. A system call where there are bytes before the FIN.
    pub(crate) fn waits_no_more(&self) -> bool {
        let drops = self.shared.dispatch.application.drops_half_closed();
        drops && (self.is_half_closed.get() || self.has_shut())
    }

    /// Whether the application has had its time for the request.
    pub(crate) fn is_overdue(&self) -> bool {
        self.is_overdue.get()
    }

    /// Whether the peer has sent a FIN behind bytes that are not read before the reply has ended: a system call, where
    /// nothing else would tell.
    pub(super) fn has_shut(&self) -> bool {
        !self.is_watched.get()
            && !self.is_half_closed.get()
            && self.transport.borrow().has_peer_half_closed()
    }
}
