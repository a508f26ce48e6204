//! A worker's reply, on its way to the client: whole where it is short, else in pieces, as fast as the client takes them.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use httparse::Header;
use rookery_exchange::{
    ChunkAdmission, Command, Exchange, Payload, StreamEnd, StreamId, StreamOptions, StreamedBody,
};
use rookery_server::session_cookie;
use tokio::sync::Notify;

use super::error_reply::ErrorReply;
use super::framing::response_head::{Framing, Head};
use super::state::State;
use super::worker_connection::WorkerConnection;

/// Bytes of a reply that is passed on whole: then it leaves in one write with its head. Longer ones go in pieces, and cost no copy
/// of their whole.
const WHOLE: u64 = 32 << 10;

/// Headers that are between the worker and us.
const NEIGHBOURS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "trailer", "transfer-encoding", "upgrade"];

/// Whether a line of the reply names this header as one between the worker and us (RFC 9110, 7.6.1).
fn is_named(lines: &[Header<'_>], name: &str) -> bool {
    let lines = lines.iter().filter(|line| line.name.eq_ignore_ascii_case("connection"));
    let mut words = lines.flat_map(|line| line.value.split(|byte| *byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
}

/// The client's end of a reply that goes in pieces.
#[derive(Debug, Default)]
pub(super) struct ResponseSink {
    has_departed: Cell<bool>,
    news: Notify,
}

impl ResponseSink {
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

/// Writes the head of a worker's reply into its exchange: what of it is the client's.
pub(super) fn begin(exchange: &mut Exchange, status: u16, lines: &[Header<'_>]) {
    exchange.begin_response(status);
    // Hardly any names one: else all lines would be gone through for each of them.
    let names_some = lines.iter().any(|line| line.name.eq_ignore_ascii_case("connection"));
    for line in lines {
        let is_between = NEIGHBOURS.iter().any(|name| name.eq_ignore_ascii_case(line.name))
            || (names_some && is_named(lines, line.name));
        if !is_between {
            // It was read as one.
            let _ = exchange.push_response_header(line.name.as_bytes(), line.value);
        }
    }
}

/// Tells the client which worker it came to: not in what a cache would give to everybody. Says whether it has.
pub(super) fn set_cookie(exchange: &mut Exchange, cookie: &str) -> bool {
    // It has digits and words of ours.
    !is_for_all(exchange) && exchange.push_response_header(b"Set-Cookie", cookie.as_bytes()).is_ok()
}

/// Whether a reply is for caches that many share (RFC 9111, 5.2.2).
fn is_for_all(exchange: &Exchange) -> bool {
    let mut lines =
        exchange.response_headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"cache-control"));
    lines.any(|(_, value)| session_cookie::is_publicly_cacheable(value))
}

/// Passes a reply on whose head is in its exchange.
pub(super) async fn pass_on(
    state: &Rc<State>,
    mut exchange: Box<Exchange>,
    connection: &mut WorkerConnection,
    head: Head,
) -> Passed {
    match head.body {
        Framing::None | Framing::Length(0) => state.respond(exchange),
        Framing::Length(len) if len <= WHOLE => match connection.whole(state, len as usize).await {
            Ok(whole) => {
                exchange.set_response_body(whole);
                state.respond(exchange);
            }
            Err(error) => return refuse(state, exchange, &error),
        },
        _ => return in_pieces(state, exchange, connection).await,
    }
    Passed::Whole
}

/// AdminHandler instead of a worker whose reply has broken off before anything of it was sent.
fn refuse(state: &State, mut exchange: Box<Exchange>, error: &io::Error) -> Passed {
    let refusal = broken(error);
    exchange.update_upstream_log(|upstream| upstream.termination_state = refusal.ended());
    refusal.answer(&mut exchange);
    state.respond(exchange);
    Passed::Cut
}

/// Why a reply has broken off.
fn broken(error: &io::Error) -> ErrorReply {
    if error.kind() == io::ErrorKind::InvalidData {
        ErrorReply::Unreadable
    } else {
        ErrorReply::Died
    }
}

async fn in_pieces(
    state: &Rc<State>,
    mut exchange: Box<Exchange>,
    connection: &mut WorkerConnection,
) -> Passed {
    // A piece that is there leaves with the head; one that is not must not hold it back, as the worker has not.
    let mut first = poll_fn(|cx| match connection.poll_piece(cx, state) {
        Poll::Ready(piece) => Poll::Ready(Some(piece)),
        Poll::Pending => Poll::Ready(None),
    })
    .await;
    if let Some(Some(Err(error))) = first {
        return refuse(state, exchange, &error);
    }
    // Pulled, since a server that stops waits for such a one, and ends others where they are; but what there is goes on by itself.
    let rules = StreamOptions {
        is_pulled: true,
        sends_head_first: first.is_none(),
        // Of all that may end it.
        failed_status: 502,
        ..StreamOptions::default()
    };
    let stream = StreamedBody::new(rules, state.limits.stream_bytes);
    let (id, flow) = (exchange.id(), std::sync::Arc::clone(&stream.flow));
    let outlet = Rc::new(ResponseSink::default());
    state.add_outlet(id, Rc::clone(&outlet));
    exchange.set_response_stream(stream);
    state.respond(exchange);
    loop {
        let piece = match first.take() {
            Some(piece) => piece,
            None => {
                tokio::select! {
                    biased;
                    () = departed(&outlet) => return Passed::Cut,
                    piece = poll_fn(|cx| connection.poll_piece(cx, state)) => piece,
                }
            }
        };
        match piece {
            Some(Ok(piece)) => {
                if !send(state, id, &outlet, &flow, piece).await {
                    return Passed::Cut;
                }
            }
            None => {
                state.command(Command::EndStream { stream: id });
                return Passed::Whole;
            }
            Some(Err(error)) => {
                // Where nothing has been sent yet, it is said instead.
                let page = broken(&error).text().as_bytes().to_vec();
                state.command(Command::AbortStream { stream: id, reason: StreamEnd::Error, page });
                return Passed::Cut;
            }
        }
    }
}

/// Sends a piece, and waits until the client has room for the next. `false`: it has gone.
async fn send(
    state: &State,
    stream: StreamId,
    outlet: &ResponseSink,
    flow: &rookery_exchange::StreamFlow,
    piece: Vec<u8>,
) -> bool {
    let given = flow.admit(piece.len());
    if !matches!(given, ChunkAdmission::Continue | ChunkAdmission::Pause) {
        let reason =
            if given == ChunkAdmission::ClientTooSlow { StreamEnd::Slow } else { StreamEnd::Error };
        state.command(Command::AbortStream { stream, reason, page: Vec::new() });
        return false;
    }
    state.command(Command::Chunk { stream, payload: Payload::Pooled(piece), is_pushing: true });
    // UrlAffinity of room or of the end, whichever comes.
    while given == ChunkAdmission::Pause && !flow.has_capacity() && !outlet.has_departed.get() {
        outlet.news.notified().await;
    }
    !outlet.has_departed.get()
}

async fn departed(outlet: &ResponseSink) {
    while !outlet.has_departed.get() {
        outlet.news.notified().await;
    }
}
