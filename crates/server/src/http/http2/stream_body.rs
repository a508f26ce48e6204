//! The body of an HTTP/2 request. For each byte of the body that the server reads, the client may
//! send another one (flow control). The server stops reading while it cannot store more of the
//! body, so a client cannot exhaust the server's memory.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use rookery_exchange::{Charge, Share};

use super::connection_state::{Http2State, STREAM_WINDOW};
use crate::http::connection::http_connection::HttpConnection;
use crate::http::request::request_body::RequestBody;
use crate::rejection::Rejection;

/// The handle for sending a response on an HTTP/2 stream. The request body shares it in order to
/// send `100 Continue`.
pub(super) type SharedResponder = Rc<RefCell<SendResponse<Bytes>>>;

/// The body of an HTTP/2 request.
pub(super) struct StreamBody {
    /// The DATA frames of the request body, or `None` if the request has no body.
    frames: Option<RecvStream>,
    connection: Rc<HttpConnection>,
    /// The `Content-Length` of the request, if the client sent one.
    length: Option<u64>,
    read: u64,
    /// Bytes of the body that were taken from h2 but that the server has not read yet. The
    /// flow-control window of the stream limits their number.
    buffered: Vec<u8>,
    /// The end of the body: `Ok` if it is complete, or the error that ended it. Set once the last
    /// DATA frame has been taken from h2.
    end: Option<Result<(), h2::Error>>,
    /// The charge to the memory budget for bytes of the body that the client may send before the
    /// server reads them.
    _reservation: Option<BodyReservation>,
    /// The handle for sending `100 Continue`, if the client waits for this response before it sends
    /// the body.
    continue_to: Option<SharedResponder>,
}

impl StreamBody {
    /// Creates the body of an HTTP/2 request with the given headers. Returns `None` if the memory
    /// budget is exhausted.
    pub(super) fn new(
        frames: RecvStream,
        headers: &HeaderMap,
        connection: &Rc<HttpConnection>,
        state: &Rc<Http2State>,
        responder: &SharedResponder,
    ) -> Option<StreamBody> {
        let length = headers
            .get(http::header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let window = STREAM_WINDOW as usize;
        let charged = match length {
            _ if frames.is_end_stream() => 0,
            Some(length) => usize::try_from(length).unwrap_or(window).min(window),
            None => window,
        };
        let reservation = if charged > 0 {
            Some(BodyReservation::reserve(state, connection, charged)?)
        } else {
            None
        };
        let expects = headers.get(http::header::EXPECT);
        let continue_to = expects
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
            .then(|| Rc::clone(responder));
        let connection = Rc::clone(connection);
        let (buffered, end) = (Vec::new(), None);
        Some(StreamBody {
            frames: Some(frames),
            connection,
            length,
            read: 0,
            buffered,
            end,
            _reservation: reservation,
            continue_to,
        })
    }

    /// Creates an empty request body for an HTTP/2 stream whose DATA frames do not contain a
    /// request body, for example because the stream becomes a WebSocket.
    pub(super) fn empty(connection: &Rc<HttpConnection>) -> StreamBody {
        let connection = Rc::clone(connection);
        let (buffered, end) = (Vec::new(), None);
        let length = Some(0);
        StreamBody {
            frames: None,
            connection,
            length,
            read: 0,
            buffered,
            end,
            _reservation: None,
            continue_to: None,
        }
    }

    /// Returns the next part of the request body: the buffered bytes if there are any, and
    /// otherwise the next DATA frame. Returns `None` at the end of the body.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        if !self.buffered.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.buffered).into())));
        }
        let Some(frames) = &mut self.frames else { return Poll::Ready(None) };
        match self.end.take() {
            None => frames.poll_data(cx),
            Some(Ok(())) => {
                self.end = Some(Ok(()));
                Poll::Ready(None)
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }
}

/// The charge to the memory budget for bytes of an HTTP/2 stream that the client may send before
/// the server reads them. Dropping the value ends the charge.
pub(super) enum BodyReservation {
    /// The bytes count for the connection, whose window limits them.
    OfConnection { state: Rc<Http2State>, bytes: usize },
    /// The bytes count for the stream, because its client is one of many behind a trusted proxy.
    OfStream { stream: Rc<HttpConnection>, _charge: Charge },
}

impl BodyReservation {
    /// Charges the memory budget for `bytes` bytes that the client may send on a stream before the
    /// server reads them. Returns `None` if the memory budget is exhausted.
    pub(super) fn reserve(
        state: &Rc<Http2State>,
        stream: &Rc<HttpConnection>,
        bytes: usize,
    ) -> Option<BodyReservation> {
        if !state.is_proxied() {
            let state = Rc::clone(state);
            return state
                .reserve_body(bytes)
                .then(|| BodyReservation::OfConnection { state, bytes });
        }
        let connections = &stream.shared.connections;
        let charge = connections.try_charge(stream.peer_of_request(), Share::Incoming, bytes)?;
        stream.body_window.set(bytes);
        Some(BodyReservation::OfStream { stream: Rc::clone(stream), _charge: charge })
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        match self {
            BodyReservation::OfConnection { state, bytes } => state.release_body(*bytes),
            BodyReservation::OfStream { stream, .. } => stream.body_window.set(0),
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if self.frames.is_none() {
            return Poll::Ready(None);
        }
        let polled = self.poll_data(cx);
        if polled.is_pending() {
            if let Some(responder) = self.continue_to.take() {
                let mut response = Response::new(());
                *response.status_mut() = StatusCode::CONTINUE;
                // Fails only if the stream has ended, which reading reports as well.
                let _ = responder.borrow_mut().send_informational(response);
            }
        }
        let now = self.connection.shared.connections.clock.now();
        let read = match &polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(data))) => Poll::Ready(Ok(data.len())),
            Poll::Ready(_) => Poll::Ready(Ok(0)),
        };
        self.connection.activity.on_read(&read, now);
        match ready!(polled) {
            Some(Ok(data)) => {
                self.continue_to = None;
                self.read += data.len() as u64;
                // Fails only if the stream has ended.
                if let Some(frames) = &mut self.frames {
                    let _ = frames.flow_control().release_capacity(data.len());
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.buffered.is_empty() && self.frames.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, |length| {
            SizeHint::with_exact(length.saturating_sub(self.read))
        })
    }
}

impl RequestBody for StreamBody {
    /// Returns `None`, because no response can be sent after a read error. The stream or the
    /// connection has already been reset, either by the client, or by h2 because the client
    /// violated the protocol.
    fn rejection(_: &h2::Error) -> Option<Rejection> {
        None
    }

    fn is_cut_short(_: &h2::Error) -> bool {
        true
    }

    fn buffer_unread(&mut self, cx: &mut Context<'_>) {
        let Some(frames) = &mut self.frames else { return };
        while self.end.is_none() {
            match frames.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => self.buffered.extend_from_slice(&data),
                Poll::Ready(Some(Err(error))) => self.end = Some(Err(error)),
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Pending => return,
            }
        }
    }
}
