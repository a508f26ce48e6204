//! A request body that is passed to the application chunk by chunk, as it arrives.
//!
//! # Invariants
//! - The application keeps the exchange (the request with its response) and may respond at any
//!   time. If it responds early, the rest of the body is not read.
//! - At most [`READ_AHEAD`] bytes are read that the application has not processed yet. Small chunks
//!   reach the limit with fewer bytes, because each chunk has a minimum [cost](chunk_cost).
//! - The application is notified exactly once that the body has ended, for whatever reason.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rookery_exchange::{Charge, Event, Exchange, ExchangeId, Payload, Peer, Share, StreamEnd};

use crate::application::dispatch::AppDecision;
use crate::connections::admission::UNCHARGED_BYTES;
use crate::http::connection::http_connection::{CloseState, HttpConnection, WaitAborted};
use crate::http::request::pending_response::PendingResponse;
use crate::http::request::request_body::RequestBody;
use crate::http::request::request_context::RequestContext;
use crate::http::request::stream::registry::{UnprocessedChunks, chunk_cost};
use crate::rejection::Rejection;

/// The maximum number of bytes of a request body that the server reads before the application has
/// processed them.
const READ_AHEAD: usize = 256 << 10;

/// A request body that is being passed to the application chunk by chunk. Dropping it notifies the
/// application that the body has ended.
#[derive(Debug)]
struct RequestStream {
    id: ExchangeId,
    peer: Peer,
    connection: Rc<HttpConnection>,
    unprocessed: Rc<UnprocessedChunks>,
    is_end_reported: bool,
}

impl RequestStream {
    fn begin(context: &RequestContext) -> RequestStream {
        let connection = Rc::clone(&context.connection);
        let unprocessed = Rc::new(UnprocessedChunks {
            connection_key: connection.key.get(),
            cost: Cell::new(0),
            charge: Charge::new(&connection.shared.connections.budget, Share::Incoming),
        });
        connection.shared.request_streams.open(context.id, &unprocessed);
        let (id, peer) = (context.id, context.peer());
        RequestStream { id, peer, connection, unprocessed, is_end_reported: false }
    }

    fn has_capacity(&self) -> bool {
        self.unprocessed.cost.get() < READ_AHEAD
    }

    /// Passes a chunk of the request body to the application.
    ///
    /// # Errors
    /// Returns [`Rejection::Overload`] if the memory budget is exhausted.
    fn push(&self, chunk: &[u8]) -> Result<(), Rejection> {
        let (shared, unprocessed) = (&self.connection.shared, &self.unprocessed);
        unprocessed.cost.set(unprocessed.cost.get() + chunk_cost(chunk.len()));
        let (has, needs) = (unprocessed.charge.bytes(), unprocessed.bytes_to_charge());
        if needs > has && !shared.connections.admit(self.peer, Share::Incoming, has, needs - has) {
            return Err(Rejection::Overload);
        }
        unprocessed.update_charge();
        self.connection.activity.request_bytes.set(needs.max(UNCHARGED_BYTES));
        let mut buffer = shared.dispatch.application.take_buffer();
        buffer.extend_from_slice(chunk);
        let (id, listener) = (self.id, self.connection.listener);
        let payload = Payload::Pooled(buffer);
        shared.dispatch.notify(self.peer, Event::Body { exchange: id, listener, payload });
        Ok(())
    }

    /// Notifies the application that the request body has ended, unless it has already been
    /// notified.
    fn end(&mut self, reason: StreamEnd) {
        if !std::mem::replace(&mut self.is_end_reported, true) {
            let (id, listener) = (self.id, self.connection.listener);
            let ended = Event::BodyEnd { exchange: id, listener, reason };
            self.connection.shared.dispatch.notify(self.peer, ended);
        }
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        let reason = match self.connection.close_state.get() {
            CloseState::BodyTimeout => StreamEnd::Timeout,
            CloseState::Overload => StreamEnd::Error,
            CloseState::Now => StreamEnd::Stop,
            _ => StreamEnd::Client,
        };
        self.end(reason);
        self.connection.shared.request_streams.forget(self.id);
    }
}

/// The next event while a request body is being passed to the application: a chunk, the end of the
/// body, or the application's decision.
enum Step<E> {
    Chunk(Bytes),
    /// The request body is complete.
    Complete,
    Failed(E),
    Route(AppDecision),
    Aborted(WaitAborted),
}

/// Passes a request body to the application chunk by chunk, and waits for the application's
/// response.
///
/// # Errors
/// Fails with the rejection to respond with if the body is invalid or too large, the memory budget
/// is exhausted, or the request timed out. Fails with `None` if the client disconnected.
pub(crate) async fn stream_to_application<B: RequestBody>(
    mut context: RequestContext,
    mut body: B,
    mut pending: PendingResponse,
) -> Result<(RequestContext, Box<Exchange>), (RequestContext, Option<Rejection>)> {
    let mut stream = RequestStream::begin(&context);
    if !context.connection.begin_body_stream() {
        return Err((context, None));
    }
    let max = context.shared().connections.limits().max_body_size;
    let (mut len, mut is_complete) = (0u64, false);
    context.begin_reading();
    let rejection = loop {
        let step = poll_fn(|cx| poll_step(cx, &stream, &mut pending, &mut body, is_complete)).await;
        match step {
            Step::Chunk(chunk) => {
                len += chunk.len() as u64;
                if len > max {
                    break Some(Rejection::BodyTooLarge);
                }
                if let Err(rejection) = stream.push(&chunk) {
                    break Some(rejection);
                }
            }
            Step::Complete => {
                is_complete = true;
                stream.end(StreamEnd::Done);
                context.begin_waiting();
            }
            Step::Route(AppDecision::Respond(exchange)) => {
                context.set_unread_body(!is_complete);
                stream.end(StreamEnd::Done);
                return Ok((context, exchange));
            }
            Step::Failed(error) => {
                let rejection = B::rejection(&error);
                if rejection.is_some() && B::is_cut_short(&error) {
                    stream.end(StreamEnd::Client);
                }
                break rejection;
            }
            Step::Aborted(WaitAborted::TimedOut) => break Some(Rejection::RequestTimeout),
            Step::Aborted(WaitAborted::Evicted) => break Some(Rejection::Busy),
            Step::Route(_) | Step::Aborted(WaitAborted::Disconnected) => break None,
        }
    };
    if rejection.is_some() {
        stream.end(StreamEnd::Error);
        context.set_unread_body(true);
    }
    Err((context, rejection))
}

/// Returns the application's decision about the request if there is one, and otherwise the next
/// chunk of its body.
fn poll_step<B: RequestBody>(
    cx: &mut Context<'_>,
    stream: &RequestStream,
    pending: &mut PendingResponse,
    body: &mut B,
    is_complete: bool,
) -> Poll<Step<B::Error>> {
    if is_complete || !stream.has_capacity() {
        if !is_complete {
            stream.connection.activity.on_application_wait();
            body.buffer_unread(cx);
        }
        // The body is not being read, so only this poll detects a disconnect of the client.
        return Pin::new(pending)
            .poll(cx)
            .map(|answered| answered.map_or_else(Step::Aborted, Step::Route));
    }
    if let Some(answer) = pending.take_decision() {
        return Poll::Ready(Step::Route(answer));
    }
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            // Trailers are read and dropped, as for bodies that are collected.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) if chunk.is_empty() => {}
                Ok(chunk) => return Poll::Ready(Step::Chunk(chunk)),
                Err(_) => {}
            },
            Some(Err(error)) => return Poll::Ready(Step::Failed(error)),
            None => return Poll::Ready(Step::Complete),
        }
    }
}
