//! The transport of a WebSocket within an HTTP/2 stream (RFC 8441).

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::Response;
use http::header::DATE;
use rookery_exchange::Exchange;
use tokio::io::ReadBuf;

use super::connection_state::STREAM_WINDOW;
use super::date;
use super::stream_body::{BodyReservation, SharedResponder};
use super::stream_guard::{MAX_SEND, StreamGuard};
use crate::connections::table::{Slot, TableEntry as _};
use crate::net::transport::{MultiplexedStream, PeerState, Transport};
use crate::websocket::driver::{Upgraded, spawn};
use crate::websocket::handshake::accepted_headers;

/// The DATA frames that arrive on an HTTP/2 stream while the application has not yet accepted the
/// WebSocket that the client wants to open.
pub(super) struct IncomingFrames {
    input: Input,
    _reservation: BodyReservation,
}

impl IncomingFrames {
    /// Begins to keep the DATA frames of an HTTP/2 stream until its WebSocket is accepted. Charges
    /// the memory budget for all bytes that the client may send until then. Returns `None` if the
    /// budget is exhausted.
    pub(super) fn new(frames: RecvStream, guard: &StreamGuard) -> Option<IncomingFrames> {
        BodyReservation::reserve(&guard.state, &guard.stream, STREAM_WINDOW as usize).map(
            |reservation| IncomingFrames { input: Input::new(frames), _reservation: reservation },
        )
    }

    /// Buffers the bytes that have arrived. h2 would close the connection if many small frames were
    /// left unread, and would need much more memory for them.
    pub(super) fn buffer_unread(&mut self, cx: &mut Context<'_>) {
        self.input.buffer_unread(cx);
    }
}

/// Turns an HTTP/2 stream into the WebSocket that the application has accepted. The WebSocket
/// remains a stream of its HTTP/2 connection.
pub(super) fn open_websocket(
    guard: StreamGuard,
    slot: Slot,
    responder: &SharedResponder,
    incoming: Option<IncomingFrames>,
    exchange: Box<Exchange>,
) {
    let shared = Rc::clone(&guard.stream.shared);
    let (id, is_ending) = (exchange.id(), guard.stream.is_ending());
    let extensions = shared.websockets.extensions(id);
    let opened = incoming.zip(extensions).and_then(|(incoming, extensions)| {
        let mut response = Response::new(());
        *response.headers_mut() = accepted_headers(&exchange, extensions);
        response.headers_mut().insert(DATE, date::now());
        let outgoing = responder.borrow_mut().send_response(response, false).ok()?;
        Some((incoming.input, outgoing))
    });
    let Some((input, outgoing)) = opened else {
        // The client reset the stream in the same iteration in which the application accepted the
        // WebSocket.
        shared.dispatch.abandon(exchange.slot());
        return shared.discard_exchange(exchange);
    };
    shared.dispatch.finish(exchange);
    // The WebSocket is charged by itself.
    guard.stream.charge.set(0);
    let tunnel = StreamTransport::new(guard, input, outgoing);
    let transport = Transport::multiplexed(Box::new(tunnel));
    spawn(&shared.websockets, id, Upgraded { transport, slot, read: Bytes::new(), is_ending });
}

/// The reason why a WebSocket over HTTP/2 receives no more input.
#[derive(Debug, Clone, Copy)]
enum InputEnd {
    /// The client has ended its direction of the HTTP/2 stream.
    Finished,
    /// The HTTP/2 stream was reset, or the connection closed.
    Reset,
}

/// The input of a WebSocket within an HTTP/2 stream.
struct Input {
    frames: RecvStream,
    /// Bytes that were taken from h2 but that the server has not read yet. The flow-control window
    /// of the stream limits their number. The buffer is freed when the server has read all of them.
    buffered: VecDeque<u8>,
    end: Option<InputEnd>,
    /// True once the client has sent any bytes on the stream.
    has_received: bool,
}

impl Input {
    fn new(frames: RecvStream) -> Input {
        Input { frames, buffered: VecDeque::new(), end: None, has_received: false }
    }

    /// Waits for the payload of the stream's next DATA frame. Does not release the flow-control
    /// window for the payload. Returns `None` at the end of the stream, and then stores the reason
    /// in `end`.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.frames.poll_data(cx)) {
            Some(Ok(data)) => {
                self.has_received = true;
                Some(data)
            }
            Some(Err(_)) => {
                self.end = Some(InputEnd::Reset);
                None
            }
            None => {
                self.end = Some(InputEnd::Finished);
                None
            }
        })
    }

    fn buffer_unread(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(data)) = self.poll_data(cx) {
            self.buffered.extend(&data[..]);
        }
    }

    /// Moves buffered bytes into `buffer`, and lets the client send as many more.
    fn take_buffered(&mut self, buffer: &mut ReadBuf<'_>) {
        let before = buffer.filled().len();
        while !self.buffered.is_empty() && buffer.remaining() > 0 {
            let (first, _) = self.buffered.as_slices();
            let fits = first.len().min(buffer.remaining());
            buffer.put_slice(&first[..fits]);
            self.buffered.drain(..fits);
        }
        if self.buffered.is_empty() {
            self.buffered = VecDeque::new();
        }
        self.release_window(buffer.filled().len() - before);
    }

    /// Lets the client send `bytes` more bytes on the stream, because the server has read that
    /// many.
    fn release_window(&mut self, bytes: usize) {
        // Fails only if the stream has ended.
        let _ = self.frames.flow_control().release_capacity(bytes);
    }
}

/// The transport of a WebSocket within an HTTP/2 stream (RFC 8441).
struct StreamTransport {
    guard: StreamGuard,
    input: Input,
    outgoing: SendStream<Bytes>,
    /// True once the server has ended its direction of the HTTP/2 stream.
    is_shut: bool,
}

impl StreamTransport {
    fn new(guard: StreamGuard, input: Input, outgoing: SendStream<Bytes>) -> StreamTransport {
        if guard.state.on_websocket_opened() {
            // The stall timeout of WebSockets applies as on a connection of its own. The sweep
            // still checks the other streams.
            let limits = guard.stream.shared.connections.limits();
            guard.set_stall_timeout(limits.ws_stall_timeout.max(limits.idle_timeout));
        }
        StreamTransport { guard, input, outgoing, is_shut: false }
    }
}

impl MultiplexedStream for StreamTransport {
    /// Fills `buffer` from all DATA frames that have arrived. h2 would close the connection if many
    /// small frames were left unread.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        loop {
            self.input.take_buffered(buffer);
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let is_filled = buffer.filled().len() > before;
            match self.input.poll_data(cx) {
                Poll::Ready(Some(data)) => {
                    let fits = data.len().min(buffer.remaining());
                    buffer.put_slice(&data[..fits]);
                    self.input.release_window(fits);
                    self.input.buffered.extend(&data[fits..]);
                }
                Poll::Pending if !is_filled => return Poll::Pending,
                Poll::Ready(None)
                    if !is_filled && matches!(self.input.end, Some(InputEnd::Reset)) =>
                {
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
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum::<usize>().min(MAX_SEND);
        let capacity = loop {
            let capacity = self.outgoing.capacity();
            if capacity > 0 {
                break capacity;
            }
            self.outgoing.reserve_capacity(wanted);
            match ready!(self.outgoing.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                _ => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        };
        let len = wanted.min(capacity);
        let chunk = self.guard.state.copy_chunk(buffers, len);
        Poll::Ready(match self.outgoing.send_data(chunk, false) {
            Ok(()) => Ok(len),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        })
    }

    /// Returns the stream's unused capacity to the connection's flow-control window, so that other
    /// streams can use it. Called when no more bytes are waiting to be written.
    fn flush(&mut self) {
        if self.outgoing.capacity() > 0 {
            self.outgoing.reserve_capacity(0);
        }
    }

    fn buffer_unread(&mut self, cx: &mut Context<'_>) -> usize {
        self.input.buffer_unread(cx);
        self.input.buffered.len()
    }

    fn peer_state(&self) -> PeerState {
        match self.input.end {
            None => PeerState::Open,
            Some(InputEnd::Finished) => PeerState::HalfClosed,
            Some(InputEnd::Reset) => PeerState::Closed,
        }
    }

    fn discard_unread(&mut self) {
        let unread = std::mem::take(&mut self.input.buffered);
        self.input.release_window(unread.len());
    }

    fn shut_down(&mut self) {
        if !std::mem::replace(&mut self.is_shut, true) {
            // Fails only if the stream has ended.
            let _ = self.outgoing.send_data(Bytes::new(), true);
        }
    }

    fn reset(&mut self) {
        self.is_shut = true;
        self.outgoing.send_reset(Reason::CANCEL);
    }
}

impl Drop for StreamTransport {
    fn drop(&mut self) {
        if self.guard.state.on_websocket_closed() {
            self.guard
                .set_stall_timeout(self.guard.stream.shared.connections.limits().idle_timeout);
        }
        // A client that opens WebSockets and resets them without sending anything wastes work.
        self.guard.is_wasted =
            !self.input.has_received && matches!(self.input.end, Some(InputEnd::Reset));
    }
}

impl fmt::Debug for StreamTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("end", &self.input.end).finish_non_exhaustive()
    }
}
