//! A stream that has become a WebSocket (RFC 8441): its frames of DATA as a transport.

use std::fmt;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use http::header::DATE;
use rookery_exchange::{Exchange, Share};
use tokio::io::ReadBuf;

use super::date;
use super::session::{Http2Session, STREAM_WINDOW};
use super::stream_body::{Respond, Room};
use super::stream_guard::{StreamGuard, TURN};
use crate::connections::table::{Slot, TableEntry as _};
use crate::net::transport::{MultiplexedStream, PeerState, Transport};
use crate::websocket::driver::{Upgraded, spawn};
use crate::websocket::handshake::accepted_headers;

/// What comes of a stream while the application decides whether it is to become a WebSocket.
pub(super) struct Coming {
    frames: RecvStream,
    _room: Room,
}

impl Coming {
    /// `None` when there is no room for what may come before it is read.
    pub(super) fn new(frames: RecvStream, session: &Rc<Http2Session>) -> Option<Coming> {
        Room::take(session, STREAM_WINDOW as usize).map(|room| Coming { frames, _room: room })
    }
}

/// A stream becomes the WebSocket that the application has accepted. Its place among the streams of its session it keeps.
pub(super) fn open(
    served: StreamGuard,
    slot: Slot,
    respond: &Respond,
    coming: Option<Coming>,
    exchange: Box<Exchange>,
) {
    let shared = Rc::clone(&served.stream.shared);
    let (id, is_ending) = (exchange.id(), served.stream.is_ending());
    let extensions = shared.websockets.extensions(id);
    let opened = coming.zip(extensions).and_then(|(coming, extensions)| {
        let mut response = Response::new(());
        *response.headers_mut() = accepted_headers(&exchange, extensions);
        response.headers_mut().insert(DATE, date::now());
        let going = respond.borrow_mut().send_response(response, false).ok()?;
        Some((coming.frames, going))
    });
    let Some((coming, going)) = opened else {
        // Reset in the very turn in which it was accepted.
        shared.dispatch.abandon(exchange.slot());
        return shared.disown(exchange);
    };
    shared.dispatch.finish(exchange);
    let tunnel = Tunnel::new(served, coming, going);
    let transport = Transport::multiplexed(Box::new(tunnel));
    // The stream is charged what every stream is.
    let charge = shared.connections.charge(Share::Connections, 0);
    spawn(
        &shared.websockets,
        id,
        Upgraded { transport, slot, charge, read: Bytes::new(), is_ending },
    );
}

/// How what comes has ended.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The peer has ended its side.
    Ended,
    /// The stream has been reset, or its connection is over.
    Reset,
}

/// See the module.
struct Tunnel {
    served: StreamGuard,
    coming: RecvStream,
    going: SendStream<Bytes>,
    /// What has come and has not been read, of which the first `read` bytes have: no more than a stream's window, because what is not read is
    /// not granted again. Empty, it holds nothing.
    held: Vec<u8>,
    read: usize,
    end: Option<End>,
    /// Whether anything has come at all.
    has_come: bool,
    /// Whether the server has ended its side.
    is_shut: bool,
}

impl Tunnel {
    fn new(served: StreamGuard, coming: RecvStream, going: SendStream<Bytes>) -> Tunnel {
        if served.session.open_socket() {
            // As long as over a connection of its own; other streams are still looked at by the sweep.
            let limits = &served.stream.shared.connections.limits;
            served.keep_for(limits.stall_time.max(limits.idle_time));
        }
        let (held, read, end) = (Vec::new(), 0, None);
        Tunnel { served, coming, going, held, read, end, has_come: false, is_shut: false }
    }

    /// Waits for what comes next, and does not grant it again; `None` at the end, which is noted.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.coming.poll_data(cx)) {
            Some(Ok(data)) => {
                self.has_come = true;
                Some(data)
            }
            Some(Err(_)) => {
                self.end = Some(End::Reset);
                None
            }
            None => {
                self.end = Some(End::Ended);
                None
            }
        })
    }

    /// Grants what has been read again.
    fn grant(&mut self, bytes: usize) {
        // Failing means that the stream is over.
        let _ = self.coming.flow_control().release_capacity(bytes);
    }
}

impl MultiplexedStream for Tunnel {
    /// Fills `buffer` from as many frames as have come: small frames arrive faster than a task that
    /// takes one at a time could take them, and h2 closes a connection with too many of them.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            let fits = (self.held.len() - self.read).min(buffer.remaining());
            buffer.put_slice(&self.held[self.read..self.read + fits]);
            self.read += fits;
            if self.read == self.held.len() {
                self.held = Vec::new();
                self.read = 0;
            }
            self.grant(fits);
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let is_filled = buffer.filled().len() > before;
            match self.poll_data(cx) {
                Poll::Ready(Some(data)) => {
                    let fits = data.len().min(buffer.remaining());
                    buffer.put_slice(&data[..fits]);
                    self.grant(fits);
                    self.held.extend_from_slice(&data[fits..]);
                }
                Poll::Pending if !is_filled => return Poll::Pending,
                Poll::Ready(None) if !is_filled && matches!(self.end, Some(End::Reset)) => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                Poll::Pending | Poll::Ready(None) => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum::<usize>().min(TURN);
        let room = loop {
            let room = self.going.capacity();
            if room > 0 {
                break room;
            }
            self.going.reserve_capacity(wanted);
            match ready!(self.going.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                _ => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        };
        let len = wanted.min(room);
        let piece = self.served.session.piece(buffers, len);
        Poll::Ready(match self.going.send_data(piece, false) {
            Ok(()) => Ok(len),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        })
    }

    /// Room that was asked for and is not needed after all is the other streams'.
    fn flush(&mut self) {
        if self.going.capacity() > 0 {
            self.going.reserve_capacity(0);
        }
    }

    fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize {
        while let Poll::Ready(Some(data)) = self.poll_data(cx) {
            self.held.extend_from_slice(&data);
        }
        self.held.len() - self.read
    }

    fn peer_state(&self) -> PeerState {
        match self.end {
            None => PeerState::Open,
            Some(End::Ended) => PeerState::HalfClosed,
            Some(End::Reset) => PeerState::Closed,
        }
    }

    fn discard_unread(&mut self) {
        self.grant(self.held.len() - self.read);
        self.held = Vec::new();
        self.read = 0;
    }

    fn shut_down(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            // Failing means that the stream is over.
            let _ = self.going.send_data(Bytes::new(), true);
        }
    }

    fn reset(&mut self) {
        self.is_shut = true;
        self.going.send_reset(Reason::CANCEL);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if self.served.session.close_socket() {
            self.served.keep_for(self.served.stream.shared.connections.limits.idle_time);
        }
        // Opened and given up without a word, again and again, it is work for nothing.
        self.served.is_in_vain = !self.has_come && matches!(self.end, Some(End::Reset));
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("end", &self.end).finish_non_exhaustive()
    }
}
