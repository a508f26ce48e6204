//! The body of a request that goes to the application in pieces, as it arrives.
//!
//! # Ground rules
//! - The application keeps the exchange meanwhile and may answer at any time; what is left of the body is not read then.
//! - No more than [`AHEAD`] bytes are read that it has not dealt with, and of small pieces fewer: see [`cost`].
//! - It is told once that no more comes, whatever became of the body.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::{Charge, Event, Exchange, ExchangeId, Payload, Share, StreamEnd};

use crate::application::dispatch::AppDecision;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::http::connection::http_connection::{End, HttpConnection};
use crate::http::request::pending_response::{Lost, PendingResponse};
use crate::http::request::request_body::RequestBody;
use crate::http::request::request_context::RequestContext;
use crate::http::request::stream::registry::{UnprocessedChunks, cost};
use crate::rejection::Rejection;

/// Bytes that are read before the application has dealt with those before: as much as a socket brings in a few reads.
const AHEAD: usize = 256 << 10;

/// A body that is being received. Dropped, its application has been told that no more of it comes.
#[derive(Debug)]
struct RequestStream {
    id: ExchangeId,
    connection: Rc<HttpConnection>,
    waiting: Rc<UnprocessedChunks>,
    is_told: bool,
}

impl RequestStream {
    fn begin(context: &RequestContext) -> RequestStream {
        let connection = Rc::clone(&context.connection);
        let waiting = Rc::new(UnprocessedChunks {
            peer: connection.key.get(),
            cost: Cell::new(0),
            charge: Charge::new(&connection.shared.connections.budget, Share::Requests),
        });
        connection.shared.bodies.open(context.id, &waiting);
        RequestStream { id: context.id, connection, waiting, is_told: false }
    }

    fn has_room(&self) -> bool {
        self.waiting.cost.get() < AHEAD
    }

    /// Hands a piece to the application, if there is room for it.
    fn push(&self, piece: &[u8]) -> Result<(), Rejection> {
        let (shared, waiting) = (&self.connection.shared, &self.waiting);
        waiting.cost.set(waiting.cost.get() + cost(piece.len()));
        let (has, needs) = (waiting.charge.bytes(), waiting.needs());
        if needs > has && !shared.connections.admit(Share::Requests, has, needs - has) {
            return Err(Rejection::Overload);
        }
        waiting.charge();
        self.connection.activity.request.set(needs.max(UNCHARGED_BYTES));
        let mut buffer = shared.dispatch.application.take_buffer();
        buffer.extend_from_slice(piece);
        let (id, listener) = (self.id, self.connection.listener);
        shared.dispatch.notify(Event::Body {
            call: id,
            listener,
            payload: Payload::Pooled(buffer),
        });
        Ok(())
    }

    /// No more comes.
    fn end(&mut self, reason: StreamEnd) {
        if !std::mem::replace(&mut self.is_told, true) {
            let (id, listener) = (self.id, self.connection.listener);
            self.connection.shared.dispatch.notify(Event::BodyEnd { call: id, listener, reason });
        }
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        let reason = match self.connection.end.get() {
            End::BodyTimeout => StreamEnd::Timeout,
            End::Overload => StreamEnd::Error,
            End::Now => StreamEnd::Stop,
            _ => StreamEnd::Client,
        };
        self.end(reason);
        self.connection.shared.bodies.forget(self.id);
    }
}

/// What comes next.
enum Step<E> {
    Piece(Bytes),
    /// The body is whole.
    Whole,
    Failed(E),
    Answer(AppDecision),
    Lost(Lost),
}

/// Hands a body to the application, and waits for its answer.
///
/// # Errors
/// What to answer instead; `None` when there is nobody to answer.
pub(crate) async fn receive<B: RequestBody>(
    mut context: RequestContext,
    mut body: B,
    mut asking: PendingResponse,
) -> Result<(RequestContext, Box<Exchange>), (RequestContext, Option<Rejection>)> {
    let mut receiving = RequestStream::begin(&context);
    if !context.connection.may_receive() {
        return Err((context, None));
    }
    let most = context.shared().connections.limits.body_bytes;
    let (mut len, mut is_whole) = (0u64, false);
    context.reads_request();
    let refused = loop {
        let step = poll_fn(|cx| next(cx, &receiving, &mut asking, &mut body, is_whole)).await;
        match step {
            Step::Piece(piece) => {
                len += piece.len() as u64;
                if len > most {
                    break Some(Rejection::BodyTooLarge);
                }
                if let Err(rejection) = receiving.push(&piece) {
                    break Some(rejection);
                }
            }
            Step::Whole => {
                is_whole = true;
                receiving.end(StreamEnd::Done);
                context.is_asked();
            }
            Step::Answer(AppDecision::Respond(exchange)) => {
                context.leaves_rest(!is_whole);
                receiving.end(StreamEnd::Done);
                return Ok((context, exchange));
            }
            Step::Failed(error) => {
                let rejection = B::rejection(&error);
                if rejection.is_some() && B::is_cut_short(&error) {
                    receiving.end(StreamEnd::Client);
                }
                break rejection;
            }
            Step::Lost(Lost::Overdue) => break Some(Rejection::RequestTimeout),
            Step::Answer(_) | Step::Lost(Lost::ClientDisconnected) => break None,
        }
    };
    if refused.is_some() {
        receiving.end(StreamEnd::Error);
        context.leaves_rest(true);
    }
    Err((context, refused))
}

/// The answer if it has come, else the next of the body.
fn next<B: RequestBody>(
    cx: &mut Context<'_>,
    receiving: &RequestStream,
    asking: &mut PendingResponse,
    body: &mut B,
    is_whole: bool,
) -> Poll<Step<B::Error>> {
    if is_whole || !receiving.has_room() {
        if !is_whole {
            receiving.connection.activity.on_application_wait();
            body.hold_unread(cx);
        }
        // Nothing else would tell that the client has gone.
        return Pin::new(asking)
            .poll(cx)
            .map(|answered| answered.map_or_else(Step::Lost, Step::Answer));
    }
    if let Some(answer) = asking.answer() {
        return Poll::Ready(Step::Answer(answer));
    }
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            // Trailers are read and dropped, as with bodies that are read whole.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) if piece.is_empty() => {}
                Ok(piece) => return Poll::Ready(Step::Piece(piece)),
                Err(_) => {}
            },
            Some(Err(error)) => return Poll::Ready(Step::Failed(error)),
            None => return Poll::Ready(Step::Whole),
        }
    }
}
