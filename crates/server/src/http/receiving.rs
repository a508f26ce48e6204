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
use rookery_exchange::{Charge, Departure, Event, Exchange, ExchangeId, Payload, Share};

use super::asking::{Asking, Lost};
use super::bodies::{Waiting, cost};
use super::body::RequestBody;
use super::call::Call;
use super::connection::{Connection, End};
use crate::application::dispatch::Answer;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::rejection::Rejection;

/// Bytes that are read before the application has dealt with those before: as much as a socket brings in a few reads.
const AHEAD: usize = 256 << 10;

/// A body that is being received. Dropped, its application has been told that no more of it comes.
#[derive(Debug)]
struct Receiving {
    call: ExchangeId,
    connection: Rc<Connection>,
    waiting: Rc<Waiting>,
    is_told: bool,
}

impl Receiving {
    fn begin(call: &Call) -> Receiving {
        let connection = Rc::clone(&call.connection);
        let waiting = Rc::new(Waiting {
            peer: connection.key.get(),
            cost: Cell::new(0),
            charge: Charge::new(&connection.http.connections.budget, Share::Requests),
        });
        connection.http.bodies.open(call.id, &waiting);
        Receiving { call: call.id, connection, waiting, is_told: false }
    }

    fn has_room(&self) -> bool {
        self.waiting.cost.get() < AHEAD
    }

    /// Hands a piece to the application, if there is room for it.
    fn push(&self, piece: &[u8]) -> Result<(), Rejection> {
        let (http, waiting) = (&self.connection.http, &self.waiting);
        waiting.cost.set(waiting.cost.get() + cost(piece.len()));
        let (has, needs) = (waiting.charge.bytes(), waiting.needs());
        if needs > has && !http.connections.admit(Share::Requests, has, needs - has) {
            return Err(Rejection::Overload);
        }
        waiting.charge();
        self.connection.standing.request.set(needs.max(UNCHARGED_BYTES));
        let mut buffer = http.dispatch.application.buffer();
        buffer.extend_from_slice(piece);
        let (call, listener) = (self.call, self.connection.listener);
        http.dispatch.tell(Event::Body { call, listener, payload: Payload::Pooled(buffer) });
        Ok(())
    }

    /// No more comes.
    fn end(&mut self, reason: Departure) {
        if !std::mem::replace(&mut self.is_told, true) {
            let (call, listener) = (self.call, self.connection.listener);
            self.connection.http.dispatch.tell(Event::BodyEnd { call, listener, reason });
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let reason = match self.connection.end.get() {
            End::BodyTimeout => Departure::Timeout,
            End::Overload => Departure::Error,
            End::Now => Departure::Stop,
            _ => Departure::Client,
        };
        self.end(reason);
        self.connection.http.bodies.forget(self.call);
    }
}

/// What comes next.
enum Step<E> {
    Piece(Bytes),
    /// The body is whole.
    Whole,
    Failed(E),
    Answer(Answer),
    Lost(Lost),
}

/// Hands a body to the application, and waits for its answer.
///
/// # Errors
/// What to answer instead; `None` when there is nobody to answer.
pub(super) async fn receive<B: RequestBody>(
    mut call: Call,
    mut body: B,
    mut asking: Asking,
) -> Result<(Call, Box<Exchange>), (Call, Option<Rejection>)> {
    let mut receiving = Receiving::begin(&call);
    if !call.connection.may_receive() {
        return Err((call, None));
    }
    let most = call.http().connections.limits.body_bytes;
    let (mut len, mut is_whole) = (0u64, false);
    call.reads_request();
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
                receiving.end(Departure::Done);
                call.is_asked();
            }
            Step::Answer(Answer::Reply(exchange)) => {
                call.leaves_rest(!is_whole);
                receiving.end(Departure::Done);
                return Ok((call, exchange));
            }
            Step::Failed(error) => {
                let rejection = B::rejection(&error);
                if rejection.is_some() && B::is_cut_short(&error) {
                    receiving.end(Departure::Client);
                }
                break rejection;
            }
            Step::Lost(Lost::Overdue) => break Some(Rejection::RequestTimeout),
            Step::Answer(_) | Step::Lost(Lost::Gone) => break None,
        }
    };
    if refused.is_some() {
        receiving.end(Departure::Error);
        call.leaves_rest(true);
    }
    Err((call, refused))
}

/// The answer if it has come, else the next of the body.
fn next<B: RequestBody>(
    cx: &mut Context<'_>,
    receiving: &Receiving,
    asking: &mut Asking,
    body: &mut B,
    is_whole: bool,
) -> Poll<Step<B::Error>> {
    if is_whole || !receiving.has_room() {
        if !is_whole {
            receiving.connection.standing.on_application_wait();
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
