//! Functions that forward a worker's response to the client. A short body is sent at once, and a
//! longer body is streamed as fast as the client reads it.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use rookery_exchange::{
    ChunkAdmission, Command, Exchange, Payload, StreamEnd, StreamFlow, StreamId, StreamOptions,
    StreamedBody,
};

use super::connection::framing::response_head::{Framing, Head};
use super::connection::worker_connection::WorkerConnection;
use super::context::PoolContext;
use super::error_reply::ErrorReply;
use super::responder::Responder;
use super::response_sink::ResponseSink;

/// The result of forwarding a worker's response to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// The complete response was forwarded, so the connection to the worker can be used for another
    /// request.
    Complete,
    /// The response was not forwarded completely, because the client disconnected, or the worker
    /// ended or sent a malformed body.
    Aborted,
}

/// Forwards a worker's response to the client. The head of the response is already in the exchange
/// (the request with its response).
pub(super) async fn forward(
    pool: &PoolContext,
    mut exchange: Box<Exchange>,
    connection: &mut WorkerConnection,
    head: Head,
) -> Forwarded {
    match head.body {
        Framing::None | Framing::Length(0) => pool.responder.respond(exchange),
        Framing::Length(len) if len <= pool.limits.max_whole_body => {
            match connection.read_body(&pool.buffers, len as usize).await {
                Ok(body) => {
                    exchange.set_response_body(body);
                    pool.responder.respond(exchange);
                }
                Err(error) => return respond_with_error(&pool.responder, exchange, &error),
            }
        }
        _ => return stream(pool, exchange, connection).await,
    }
    Forwarded::Complete
}

/// Responds to the client with an error, because the worker's response ended too early. Called only
/// if nothing has been sent to the client yet.
fn respond_with_error(
    responder: &Responder,
    mut exchange: Box<Exchange>,
    error: &io::Error,
) -> Forwarded {
    let reply = error_reply(error);
    exchange.update_upstream_log(|upstream| {
        upstream.termination_state = reply.termination_state();
    });
    reply.write(&mut exchange);
    responder.respond(exchange);
    Forwarded::Aborted
}

/// Returns the error response for a worker's response that could not be read completely. `error` is
/// the reason.
fn error_reply(error: &io::Error) -> ErrorReply {
    if error.kind() == io::ErrorKind::InvalidData {
        ErrorReply::Malformed
    } else {
        ErrorReply::WorkerDied
    }
}

async fn stream(
    pool: &PoolContext,
    mut exchange: Box<Exchange>,
    connection: &mut WorkerConnection,
) -> Forwarded {
    // If a chunk of the body has already arrived, it is sent together with the head. Otherwise the
    // head is sent at once, as the worker sent it.
    let mut first = poll_fn(|cx| match connection.poll_chunk(cx, &pool.buffers) {
        Poll::Ready(chunk) => Poll::Ready(Some(chunk)),
        Poll::Pending => Poll::Ready(None),
    })
    .await;
    if let Some(Some(Err(error))) = first {
        return respond_with_error(&pool.responder, exchange, &error);
    }
    let options = StreamOptions {
        // The stream is marked as pulled because a server that stops waits for the end of pulled
        // streams but aborts pushed streams. The stream is nevertheless pushed, by the loop below.
        is_pulled: true,
        sends_head_first: first.is_none(),
        ..StreamOptions::default()
    };
    let body = StreamedBody::new(options, pool.limits.max_stream_queue_size);
    body.flow.set_failed_status(502);
    let (id, flow) = (exchange.id(), Arc::clone(&body.flow));
    let sink = Rc::new(ResponseSink::default());
    pool.registry.add_sink(id, Rc::clone(&sink));
    exchange.set_response_stream(body);
    pool.responder.respond(exchange);
    loop {
        let chunk = match first.take() {
            Some(chunk) => chunk,
            None => {
                tokio::select! {
                    biased;
                    () = sink.ended() => return Forwarded::Aborted,
                    chunk = poll_fn(|cx| connection.poll_chunk(cx, &pool.buffers)) => chunk,
                }
            }
        };
        match chunk {
            Some(Ok(chunk)) => {
                if !send(&pool.responder, id, &sink, &flow, chunk).await {
                    return Forwarded::Aborted;
                }
            }
            None => {
                pool.responder.send_command(Command::EndStream { stream: id });
                return Forwarded::Complete;
            }
            Some(Err(error)) => {
                // The server sends this error response only if it has not sent any of the worker's
                // response.
                let page = error_reply(&error).text().as_bytes().to_vec();
                let reason = StreamEnd::Error;
                pool.responder.send_command(Command::AbortStream { stream: id, reason, page });
                return Forwarded::Aborted;
            }
        }
    }
}

/// Sends a chunk of a worker's response to the client and waits until the client can take the next
/// chunk. Returns false if the streamed response has ended.
async fn send(
    responder: &Responder,
    stream: StreamId,
    sink: &ResponseSink,
    flow: &StreamFlow,
    chunk: Vec<u8>,
) -> bool {
    let admission = flow.admit(chunk.len());
    if !matches!(admission, ChunkAdmission::Continue | ChunkAdmission::Pause) {
        let is_slow = admission == ChunkAdmission::ClientTooSlow;
        let reason = if is_slow { StreamEnd::Slow } else { StreamEnd::Error };
        responder.send_command(Command::AbortStream { stream, reason, page: Vec::new() });
        return false;
    }
    let payload = Payload::Pooled(chunk);
    responder.send_command(Command::Chunk { stream, payload, is_pushing: true });
    while admission == ChunkAdmission::Pause && !flow.has_capacity() && !sink.has_ended() {
        sink.changed().await;
    }
    !sink.has_ended()
}
