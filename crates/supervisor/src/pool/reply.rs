//! A worker's reply, on its way to the client: whole where it is short, else in pieces, as fast as the client takes them.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::HeaderMap;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use rookery_exchange::{Command, Departure, Exchange, Given, Payload, Stream, StreamId, StreamRules};
use tokio::sync::Notify;

use super::answer::Refusal;
use super::state::State;

/// Bytes of a reply that is passed on whole: then it leaves in one write with its head. Longer ones go in pieces, and cost no copy
/// of their whole.
const WHOLE: u64 = 32 << 10;

/// Headers that are between the worker and us.
const NEIGHBOURS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "trailer", "transfer-encoding", "upgrade"];

/// The client's end of a reply that goes in pieces.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    has_departed: Cell<bool>,
    news: Notify,
}

impl Outlet {
    /// The client has taken what it was sent.
    pub(super) fn has_room(&self) {
        self.news.notify_one();
    }

    /// The client has gone, or has it all.
    pub(super) fn depart(&self) {
        self.has_departed.set(true);
        self.news.notify_one();
    }
}

/// How a reply was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// All of it: its connection can be used again.
    Whole,
    /// Not all: the client or the worker has gone.
    Cut,
}

/// Passes a reply on.
pub(super) async fn pass_on(
    state: &Rc<State>,
    mut exchange: Box<Exchange>,
    response: Response<Incoming>,
    cookie: Option<String>,
) -> Passed {
    let (head, body) = response.into_parts();
    exchange.begin_reply(head.status.as_u16());
    write_headers(&mut exchange, &head.headers, cookie);
    match body.size_hint().exact() {
        Some(0) => state.respond(exchange),
        Some(len) if len <= WHOLE => match collect(body, len).await {
            Some(whole) => {
                exchange.set_reply_body(&whole);
                state.respond(exchange);
            }
            // Nothing has been sent of it.
            None => {
                Refusal::Died.answer(&mut exchange);
                state.respond(exchange);
                return Passed::Cut;
            }
        },
        _ => return in_pieces(state, exchange, body).await,
    }
    Passed::Whole
}

/// Writes the headers that are the client's, and the cookie of its worker: not into what a cache would give to everybody.
pub(super) fn write_headers(exchange: &mut Exchange, headers: &HeaderMap, cookie: Option<String>) {
    if let Some(cookie) = cookie.filter(|_| !is_for_all(headers)) {
        // It has digits and words of ours.
        let _ = exchange.push_reply_header(b"Set-Cookie", cookie.as_bytes());
    }
    for (name, value) in headers {
        if !NEIGHBOURS.contains(&name.as_str()) {
            // hyper has read it: it is one.
            let _ = exchange.push_reply_header(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

/// Whether a reply is for caches that many share (RFC 9111, 5.2.2).
fn is_for_all(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(http::header::CACHE_CONTROL).iter();
    let mut words = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    words.any(|word| {
        let name = word.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"public") || name.eq_ignore_ascii_case(b"s-maxage")
    })
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers: the server has no way to send them.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

async fn collect(mut body: Incoming, len: u64) -> Option<Bytes> {
    let first = next(&mut body).await?.ok()?;
    if first.len() as u64 == len && body.is_end_stream() {
        return Some(first);
    }
    let mut whole = BytesMut::with_capacity(usize::try_from(len).unwrap_or(0));
    whole.extend_from_slice(&first);
    while let Some(piece) = next(&mut body).await {
        whole.extend_from_slice(&piece.ok()?);
    }
    Some(whole.freeze())
}

async fn in_pieces(state: &Rc<State>, mut exchange: Box<Exchange>, mut body: Incoming) -> Passed {
    // A piece that is there leaves with the head; one that is not must not hold it back, as the worker has not.
    let first = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
        Poll::Ready(frame) => Poll::Ready(Some(frame)),
        Poll::Pending => Poll::Ready(None),
    })
    .await;
    // Pulled, since a server that stops waits for such a one, and ends others where they are; but what there is goes on by itself.
    let rules = StreamRules { is_pulled: true, is_prompt: first.is_none(), ..StreamRules::default() };
    let stream = Stream::new(rules, state.limits.stream_bytes);
    let (id, flow) = (exchange.id(), std::sync::Arc::clone(&stream.flow));
    let outlet = Rc::new(Outlet::default());
    state.add_outlet(id, Rc::clone(&outlet));
    exchange.set_reply_stream(stream);
    state.respond(exchange);
    let mut first =
        first.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default())));
    loop {
        let piece = match first.take() {
            Some(piece) => piece,
            None => {
                tokio::select! {
                    biased;
                    () = departed(&outlet) => return Passed::Cut,
                    piece = next(&mut body) => piece,
                }
            }
        };
        match piece {
            Some(Ok(piece)) => {
                if !send(state, id, &outlet, &flow, &piece).await {
                    return Passed::Cut;
                }
            }
            None => {
                state.command(Command::End { stream: id });
                return Passed::Whole;
            }
            Some(Err(_)) => {
                state.command(Command::Cut { stream: id, reason: Departure::Error, page: Vec::new() });
                return Passed::Cut;
            }
        }
    }
}

/// Sends a piece, and waits until the client has room for the next. `false`: it has gone.
async fn send(
    state: &State,
    stream: StreamId,
    outlet: &Outlet,
    flow: &rookery_exchange::Flow,
    piece: &[u8],
) -> bool {
    if piece.is_empty() {
        return true;
    }
    let given = flow.give(piece.len());
    if !matches!(given, Given::More | Given::Enough) {
        let reason = if given == Given::Slow { Departure::Slow } else { Departure::Error };
        state.command(Command::Cut { stream, reason, page: Vec::new() });
        return false;
    }
    let mut buffer = state.buffer();
    buffer.extend_from_slice(piece);
    state.command(Command::Piece { stream, payload: Payload::Pooled(buffer), goes_on: true });
    // Told of room or of the end, whichever comes.
    while given == Given::Enough && !flow.has_room() && !outlet.has_departed.get() {
        outlet.news.notified().await;
    }
    !outlet.has_departed.get()
}

async fn departed(outlet: &Outlet) {
    while !outlet.has_departed.get() {
        outlet.news.notified().await;
    }
}
