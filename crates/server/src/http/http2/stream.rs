//! A stream: one request, answered as any other, and its reply, written as far as the peer takes it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, STRICT_TRANSPORT_SECURITY, TE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use rookery_exchange::{Exchange, Share};

use super::date;
use super::request_head;
use super::session::{FlushListener, Http2Session};
use super::stream_body::{Respond, StreamBody};
use super::stream_guard::{StreamGuard, TURN};
use super::websocket_transport::{self, Coming};
use crate::connections::table::Slot;
use crate::http::connection::activity::Phase;
use crate::http::connection::http_connection::{End, HttpConnection};
use crate::http::request::handler;
use crate::http::response::response_body::ResponseBody;
use crate::logging::access_log::pending_record::record_unreadable;
use crate::rejection::Rejection;

/// What a stream is charged: its head, with as much in h2's tables, and what h2 holds of its reply.
pub(crate) const STREAM_BYTES: usize = 32 << 10;

/// Starts to serve a stream. Refused, its peer may ask again.
pub(super) fn spawn(
    connection: &Rc<HttpConnection>,
    session: &Rc<Http2Session>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let connections = &connection.shared.connections;
    let is_full = session.under_way() >= connections.limits.streams;
    if is_full || !connections.admit(Share::Connections, 0, STREAM_BYTES) {
        session.was_in_vain();
        session.forget(u32::from(respond.stream_id()));
        return respond.send_reset(Reason::REFUSED_STREAM);
    }
    let stream = HttpConnection::of_stream(
        connection,
        session,
        connections.charge(Share::Connections, STREAM_BYTES),
    );
    let slot = connections.insert(Rc::clone(&stream) as _);
    stream.key.set(slot.key());
    if session.open(slot.key()) {
        connection.enter(Phase::Reply);
    }
    let served = StreamGuard {
        connection: Rc::clone(connection),
        session: Rc::clone(session),
        stream,
        number: u32::from(respond.stream_id()),
        is_answered: Cell::new(false),
        is_in_vain: false,
    };
    tokio::task::spawn_local(serve(served, slot, request, respond));
}

/// How far answering came.
enum Answered {
    Reply(Response<ResponseBody>),
    /// A WebSocket has been accepted.
    Upgrade(Box<Exchange>),
    /// The stream is to end.
    Ended(End),
    /// Its peer does not want it any more, or is gone.
    Gone,
}

async fn serve(
    mut served: StreamGuard,
    slot: Slot,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let stream = Rc::clone(&served.stream);
    let respond = Rc::new(RefCell::new(respond));
    let is_head = request.method() == Method::HEAD;
    let coming = Cell::new(None);
    let answered = {
        let mut answer = pin!(answer(&served, request, &respond, &coming));
        poll_fn(|cx| {
            stream.set_waker(cx);
            if stream.end.get().is_now() {
                return Poll::Ready(Answered::Ended(stream.end.get()));
            }
            if respond.borrow_mut().poll_reset(cx).is_ready() {
                return Poll::Ready(Answered::Gone);
            }
            let polled = answer.as_mut().poll(cx);
            if let (true, Some(exchange)) =
                (polled.is_pending(), stream.upgrade.borrow_mut().take())
            {
                return Poll::Ready(Answered::Upgrade(exchange));
            }
            polled.map(|reply| reply.map_or(Answered::Gone, Answered::Reply))
        })
        .await
    };
    match answered {
        Answered::Reply(reply) => {
            let sent = send(&served, &respond, reply, is_head).await;
            served.is_in_vain = matches!(sent, Err(Reset::Theirs));
        }
        Answered::Upgrade(exchange) => {
            websocket_transport::open(served, slot, &respond, coming.take(), exchange)
        }
        Answered::Ended(end) => refuse(&served, &respond, end),
        Answered::Gone => served.is_in_vain = true,
    }
}

/// Answers as over HTTP/1.1; `None` when there is nobody to answer.
async fn answer(
    served: &StreamGuard,
    request: Request<RecvStream>,
    respond: &Respond,
    coming: &Cell<Option<Coming>>,
) -> Option<Response<ResponseBody>> {
    let stream = &served.stream;
    let (mut parts, frames) = request.into_parts();
    let held = request_head::held(&parts.headers);
    stream.has_head_of(held);
    let taken = request_head::take(&mut parts, stream.shared.connections.limits.header_lines)
        .and_then(|is_tunnel| {
            let named = served.session.bound_name();
            let is_misdirected =
                named.is_some_and(|named| request_head::is_misdirected(&parts.headers, named));
            if is_misdirected { Err(Rejection::Misdirected) } else { Ok(is_tunnel) }
        });
    let body = taken.and_then(|is_tunnel| {
        if is_tunnel {
            coming.set(Some(Coming::new(frames, &served.session).ok_or(Rejection::Overload)?));
            return Ok(StreamBody::none(stream));
        }
        StreamBody::new(frames, &parts.headers, stream, &served.session, respond)
            .ok_or(Rejection::Overload)
    });
    match body {
        Ok(body) => handler::answer(stream, Request::from_parts(parts, body)).await.ok(),
        Err(rejection) => Some(handler::refuse(stream, parts, rejection).await),
    }
}

/// Ends a stream that was too slow, or for which there is no room: with an answer, where none has begun.
fn refuse(served: &StreamGuard, respond: &Respond, end: End) {
    let rejection = match end {
        End::HeadTimeout | End::BodyTimeout => Rejection::BodyTimeout,
        End::Overload => Rejection::Overload,
        End::No | End::AfterReply | End::Now => {
            return respond.borrow_mut().send_reset(Reason::CANCEL);
        }
    };
    let (stream, text) = (&served.stream, rejection.text());
    stream.shared.report(rejection);
    record_unreadable(&stream.shared.log, stream.ends.get().remote, rejection.status(), text.len());
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(rejection.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(DATE, date::now());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    if let Some(hsts) = served.connection.hsts() {
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    let sent = respond.borrow_mut().send_response(response, false);
    if let Ok(mut frames) = sent {
        // A text of ours: shorter than what every peer takes at once, or else not waited for.
        let _ = frames.send_data(Bytes::from_static(text.as_bytes()), true);
    }
}

/// The stream has been reset: by its peer, or here.
enum Reset {
    Theirs,
    Ours,
}

/// Sends a reply, and waits until it has left.
async fn send(
    served: &StreamGuard,
    respond: &Respond,
    reply: Response<ResponseBody>,
    is_head: bool,
) -> Result<(), Reset> {
    let stream = &served.stream;
    let (mut parts, body) = reply.into_parts();
    let is_interim = parts.status.is_informational();
    if is_interim {
        // No answer ends with one, and none changes protocols (RFC 9113, 8.6): what hyper says then over HTTP/1.1.
        parts.status = StatusCode::INTERNAL_SERVER_ERROR;
        parts.headers.clear();
    }
    // Of one connection for many there is nothing to say in a reply (RFC 9113, 8.2.2); the other fields of that kind are no reply's at all.
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
    let sent = respond.borrow_mut().send_response(Response::from_parts(parts, ()), is_end);
    let frames = sent.map_err(|_| Reset::Theirs)?;
    served.session.has_handed_over(Rc::clone(stream) as Rc<dyn FlushListener>, 0);
    let mut sending = ResponseSender { served, body, frames, piece: Bytes::new(), is_end };
    poll_fn(|cx| sending.poll(cx)).await?;
    served.session.has_answered();
    served.is_answered.set(true);
    // With it the call ends, but for what is not written yet.
    drop(sending);
    poll_fn(|cx| {
        stream.set_waker(cx);
        let is_written = stream.activity.phase() != Phase::Flush || stream.end.get().is_now();
        if is_written || respond.borrow_mut().poll_reset(cx).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    Ok(())
}

/// A reply whose head has been handed over.
struct ResponseSender<'a> {
    served: &'a StreamGuard,
    body: ResponseBody,
    frames: SendStream<Bytes>,
    /// What is left of a piece of the body.
    piece: Bytes,
    is_end: bool,
}

impl ResponseSender<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Reset>> {
        let stream = &self.served.stream;
        stream.set_waker(cx);
        if self.is_end {
            return Poll::Ready(Ok(()));
        }
        if stream.end.get().is_now() {
            return self.cut(Reason::CANCEL);
        }
        if stream.open_stream().is_some_and(|pieces| pieces.is_cut()) {
            return self.cut(Reason::INTERNAL_ERROR);
        }
        if self.frames.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Reset::Theirs));
        }
        loop {
            if !self.piece.is_empty() {
                let room = ready!(self.poll_room(cx))?;
                let len = room.min(self.piece.len()).min(TURN);
                let piece = self.piece.split_to(len);
                self.hand_over(piece)?;
                if self.is_end {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match ready!(std::pin::Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.piece = frame.into_data().unwrap_or_default();
                    stream.holds_back.set(!self.piece.is_empty());
                }
                // A file that has become shorter.
                Some(Err(_)) => return self.cut(Reason::INTERNAL_ERROR),
                None => {
                    self.hand_over(Bytes::new())?;
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// How much the peer takes. Nothing is reserved for what is not there.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Reset>> {
        let stream = &self.served.stream;
        loop {
            let room = self.frames.capacity();
            if room > 0 {
                return Poll::Ready(Ok(room));
            }
            self.frames.reserve_capacity(self.piece.len().min(TURN));
            match self.frames.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(_) => return Poll::Ready(Err(Reset::Theirs)),
                Poll::Pending => {
                    stream
                        .activity
                        .on_written(&Poll::Pending, stream.shared.connections.clock.now());
                    return Poll::Pending;
                }
            }
        }
    }

    fn hand_over(&mut self, piece: Bytes) -> Result<(), Reset> {
        let StreamGuard { session, stream, .. } = self.served;
        let len = piece.len();
        stream.holds_back.set(!self.piece.is_empty());
        self.is_end = self.piece.is_empty() && (len == 0 || self.body.is_end_stream());
        self.frames.send_data(piece, self.is_end).map_err(|_| Reset::Theirs)?;
        stream.activity.on_written(&Poll::Ready(Ok(len)), stream.shared.connections.clock.now());
        session.has_handed_over(Rc::clone(stream) as Rc<dyn FlushListener>, len);
        Ok(())
    }

    fn cut(&mut self, reason: Reason) -> Poll<Result<(), Reset>> {
        self.frames.send_reset(reason);
        Poll::Ready(Err(Reset::Ours))
    }
}
