//! The task of an HTTP/2 stream. The task handles one request in the same way as a request over
//! HTTP/1.1, and sends the response within the client's flow-control window.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, RETRY_AFTER, STRICT_TRANSPORT_SECURITY, TE,
};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use rookery_exchange::{Exchange, Share};

use super::connection_state::{FlushListener, Http2State};
use super::date;
use super::request_head;
use super::stream_body::{SharedResponder, StreamBody};
use super::stream_guard::{MAX_SEND, StreamGuard};
use super::websocket_transport::{self, IncomingFrames};
use crate::connections::admission::STREAM_BYTES;
use crate::connections::client_task;
use crate::connections::table::{Slot, TableEntry as _};
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{CloseState, HttpConnection};
use crate::http::request::handler;
use crate::http::response::response_body::ResponseBody;
use crate::rejection::Rejection;

/// Starts the task that serves an HTTP/2 stream. If there are too many requests or too little
/// memory, refuses the stream with an error code that lets the client retry. A trusted proxy gets
/// status 503 for its client instead, because it might stop using the server after errors.
pub(super) fn spawn(
    connection: &Rc<HttpConnection>,
    state: &Rc<Http2State>,
    request: Request<RecvStream>,
    mut responder: SendResponse<Bytes>,
) {
    let connections = &connection.shared.connections;
    let peer = connection.peer_of(request.headers());
    let rejection = if !state.admits_client(peer) || !state.has_place(peer) {
        Some(Rejection::TooManyFromIp)
    } else if !connections.admit_in_use(peer, connection.serial(), 0, STREAM_BYTES) {
        Some(Rejection::TooManyConnections)
    } else {
        None
    };
    if let Some(rejection) = rejection {
        state.on_stream_done(u32::from(responder.stream_id()));
        if state.is_proxied() {
            return respond_rejected(connection, &mut responder, rejection);
        }
        state.count_wasted(peer);
        return responder.send_reset(Reason::REFUSED_STREAM);
    }
    let stream = HttpConnection::for_http2_stream(
        connection,
        state,
        connections.charge(Share::Connections, STREAM_BYTES),
        peer,
    );
    let slot = connections.insert(Rc::clone(&stream) as _);
    stream.key.set(slot.key());
    let stream_id = u32::from(responder.stream_id());
    if state.on_stream_opened(slot.key(), stream_id) {
        connection.enter(Phase::Response);
    }
    let guard = StreamGuard {
        connection: Rc::clone(connection),
        state: Rc::clone(state),
        stream,
        stream_id,
        is_response_sent: Cell::new(false),
        is_wasted: false,
    };
    // Boxed, because the runtime moves a future of several kilobytes five times: into its task, and
    // whenever the state of the task changes.
    let network = connection.turns_of(peer);
    client_task::spawn_part(network, Box::pin(serve(guard, slot, request, responder)));
}

/// The result of processing the request of an HTTP/2 stream.
enum StreamOutcome {
    Response(Response<ResponseBody>),
    /// The application has accepted a WebSocket.
    Upgrade(Box<Exchange>),
    /// The server must close the stream, because of a timeout, overload or shutdown.
    Closing(CloseState),
    /// The client has reset the stream or closed the connection.
    Disconnected,
}

async fn serve(
    mut guard: StreamGuard,
    slot: Slot,
    request: Request<RecvStream>,
    responder: SendResponse<Bytes>,
) {
    let stream = Rc::clone(&guard.stream);
    let responder = Rc::new(RefCell::new(responder));
    let is_head = request.method() == Method::HEAD;
    let incoming = RefCell::new(None);
    let outcome = {
        let mut response = pin!(respond(&guard, request, &responder, &incoming));
        poll_fn(|cx| {
            stream.set_waker(cx);
            if stream.close_state.get().is_immediate() {
                return Poll::Ready(StreamOutcome::Closing(stream.close_state.get()));
            }
            if responder.borrow_mut().poll_reset(cx).is_ready() {
                return Poll::Ready(StreamOutcome::Disconnected);
            }
            let polled = response.as_mut().poll(cx);
            if let (true, Some(exchange)) =
                (polled.is_pending(), stream.accepted_websocket.borrow_mut().take())
            {
                return Poll::Ready(StreamOutcome::Upgrade(exchange));
            }
            if let Some(frames) = &mut *incoming.borrow_mut() {
                frames.buffer_unread(cx);
            }
            polled.map(|response| {
                response.map_or(StreamOutcome::Disconnected, StreamOutcome::Response)
            })
        })
        .await
    };
    match outcome {
        StreamOutcome::Response(response) => {
            let sent = send_response(&guard, &responder, response, is_head).await;
            guard.is_wasted = matches!(sent, Err(StreamReset::ByClient));
        }
        StreamOutcome::Upgrade(exchange) => {
            websocket_transport::open_websocket(guard, slot, &responder, incoming.take(), exchange);
        }
        StreamOutcome::Closing(end) => reject(&guard, &responder, end),
        StreamOutcome::Disconnected => guard.is_wasted = true,
    }
}

/// Processes the request of an HTTP/2 stream with the same code as for HTTP/1.1, and returns the
/// response. Returns `None` if the client disconnected.
async fn respond(
    guard: &StreamGuard,
    request: Request<RecvStream>,
    responder: &SharedResponder,
    incoming: &RefCell<Option<IncomingFrames>>,
) -> Option<Response<ResponseBody>> {
    let stream = &guard.stream;
    let (mut parts, frames) = request.into_parts();
    let head_bytes = request_head::header_list_size(&parts);
    stream.on_head_read(head_bytes);
    let limits = stream.shared.connections.limits();
    let normalized = if head_bytes < limits.http2_max_header_list_size {
        request_head::normalize(&mut parts, limits.max_headers)
    } else {
        Err(Rejection::HeadTooLarge)
    };
    let normalized = normalized.and_then(|is_tunnel| {
        let named = guard.state.bound_name();
        let is_misdirected =
            named.is_some_and(|named| request_head::is_misdirected(&parts.headers, named));
        if is_misdirected { Err(Rejection::Misdirected) } else { Ok(is_tunnel) }
    });
    let body = normalized.and_then(|is_tunnel| {
        if is_tunnel {
            incoming.replace(Some(IncomingFrames::new(frames, guard).ok_or(Rejection::Overload)?));
            return Ok(StreamBody::empty(stream));
        }
        StreamBody::new(frames, &parts.headers, stream, &guard.state, responder)
            .ok_or(Rejection::Overload)
    });
    match body {
        Ok(body) => handler::handle(stream, Request::from_parts(parts, body)).await.ok(),
        Err(rejection) => Some(handler::reject(stream, parts, rejection).await),
    }
}

/// Closes an HTTP/2 stream because of a timeout or overload. Sends an error response first if no
/// response has begun.
fn reject(guard: &StreamGuard, responder: &SharedResponder, end: CloseState) {
    let rejection = match end {
        CloseState::HeadTimeout | CloseState::BodyTimeout => Rejection::BodyTimeout,
        CloseState::Overload => Rejection::Overload,
        CloseState::Evicted => Rejection::TooManyConnections,
        CloseState::Open | CloseState::AfterResponse | CloseState::Now => {
            return responder.borrow_mut().send_reset(Reason::CANCEL);
        }
    };
    respond_rejected(&guard.connection, &mut responder.borrow_mut(), rejection);
}

/// Sends the error response for a rejection on an HTTP/2 stream.
fn respond_rejected(
    connection: &HttpConnection,
    responder: &mut SendResponse<Bytes>,
    rejection: Rejection,
) {
    let text = rejection.text();
    connection.shared.report(rejection);
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(DATE, date::now());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    if rejection.status() == 503 {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(hsts) = connection.hsts() {
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    if let Ok(mut frames) = responder.send_response(response, false) {
        // The text fits into the initial window of any reasonable client. If not, it is not waited
        // for.
        let _ = frames.send_data(Bytes::from_static(text.as_bytes()), true);
    }
}

/// The side, client or server, that has reset an HTTP/2 stream.
enum StreamReset {
    ByClient,
    ByServer,
}

/// Sends a response on an HTTP/2 stream, and waits until it has been written.
async fn send_response(
    guard: &StreamGuard,
    responder: &SharedResponder,
    response: Response<ResponseBody>,
    is_head: bool,
) -> Result<(), StreamReset> {
    let stream = &guard.stream;
    let (mut parts, body) = response.into_parts();
    let is_interim = parts.status.is_informational();
    if is_interim {
        // An informational response cannot be final, and HTTP/2 has no 101 (RFC 9113, 8.6). hyper
        // also responds with 500 in this case over HTTP/1.1.
        parts.status = StatusCode::INTERNAL_SERVER_ERROR;
        parts.headers.clear();
    }
    // Headers about the connection are not allowed in HTTP/2 (RFC 9113, 8.2.2). Others of this kind
    // cannot occur in a response.
    parts.headers.remove(CONNECTION);
    parts.headers.remove(TE);
    parts.headers.entry(DATE).or_insert_with(date::now);
    let is_bodiless = is_head
        || is_interim
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let (Some(length), false) = (body.size_hint().exact(), is_bodiless) {
        parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let is_end = is_bodiless || body.is_end_stream();
    let sent = responder.borrow_mut().send_response(Response::from_parts(parts, ()), is_end);
    let frames = sent.map_err(|_| StreamReset::ByClient)?;
    guard.state.on_data_sent(Rc::clone(stream) as Rc<dyn FlushListener>, 0);
    let mut sending = ResponseSender { guard, body, frames, chunk: Bytes::new(), is_end };
    poll_fn(|cx| sending.poll(cx)).await?;
    guard.state.on_response_sent();
    guard.is_response_sent.set(true);
    // Ends the request context, except for bytes that are not written yet.
    drop(sending);
    poll_fn(|cx| {
        stream.set_waker(cx);
        let is_written =
            stream.activity.phase() != Phase::Flush || stream.close_state.get().is_immediate();
        if stream.close_state.get().is_immediate() {
            // Otherwise h2 would keep what the client has not read.
            responder.borrow_mut().send_reset(Reason::CANCEL);
        }
        if is_written || responder.borrow_mut().poll_reset(cx).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    Ok(())
}

/// The sender of a response body on an HTTP/2 stream. The response head has already been passed to
/// h2.
struct ResponseSender<'a> {
    guard: &'a StreamGuard,
    body: ResponseBody,
    frames: SendStream<Bytes>,
    /// The part of the current chunk of the body that has not been passed to h2.
    chunk: Bytes,
    is_end: bool,
}

impl ResponseSender<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamReset>> {
        let stream = &self.guard.stream;
        stream.set_waker(cx);
        if self.is_end {
            return Poll::Ready(Ok(()));
        }
        if stream.close_state.get().is_immediate() {
            return self.reset(Reason::CANCEL);
        }
        if stream.response_stream().is_some_and(|response_stream| response_stream.is_cut()) {
            return self.reset(Reason::INTERNAL_ERROR);
        }
        if self.frames.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(StreamReset::ByClient));
        }
        loop {
            if !self.chunk.is_empty() {
                let window = ready!(self.poll_window(cx))?;
                let len = window.min(self.chunk.len()).min(MAX_SEND);
                let chunk = self.chunk.split_to(len);
                self.send_chunk(chunk)?;
                if self.is_end {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match ready!(std::pin::Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.chunk = frame.into_data().unwrap_or_default();
                    stream.has_partial_chunk.set(!self.chunk.is_empty());
                }
                // The file has become shorter.
                Some(Err(_)) => return self.reset(Reason::INTERNAL_ERROR),
                None => {
                    self.send_chunk(Bytes::new())?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Waits until the client's flow-control window permits sending, and returns the number of
    /// bytes that may be sent.
    fn poll_window(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, StreamReset>> {
        let stream = &self.guard.stream;
        loop {
            let window = self.frames.capacity();
            if window > 0 {
                return Poll::Ready(Ok(window));
            }
            self.frames.reserve_capacity(self.chunk.len().min(MAX_SEND));
            match self.frames.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(Err(StreamReset::ByClient)),
                Poll::Pending => {
                    stream
                        .activity
                        .on_written(&Poll::Pending, stream.shared.connections.clock.now());
                    return Poll::Pending;
                }
            }
        }
    }

    fn send_chunk(&mut self, chunk: Bytes) -> Result<(), StreamReset> {
        let StreamGuard { state, stream, .. } = self.guard;
        let len = chunk.len();
        stream.has_partial_chunk.set(!self.chunk.is_empty());
        self.is_end = self.chunk.is_empty() && (len == 0 || self.body.is_end_stream());
        self.frames.send_data(chunk, self.is_end).map_err(|_| StreamReset::ByClient)?;
        stream.activity.on_written(&Poll::Ready(Ok(len)), stream.shared.connections.clock.now());
        state.on_data_sent(Rc::clone(stream) as Rc<dyn FlushListener>, len);
        Ok(())
    }

    fn reset(&mut self, reason: Reason) -> Poll<Result<(), StreamReset>> {
        self.frames.send_reset(reason);
        Poll::Ready(Err(StreamReset::ByServer))
    }
}
