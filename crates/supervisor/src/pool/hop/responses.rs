//! Responses of a worker, on their way to their clients.

use std::fs::File;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rookery_exchange::wire::{self, Down, ResponseContent};
use rookery_exchange::{AppTimes, ExchangeId, ResponseBody, StreamEnd};
use rookery_worker_protocol::Ticket;

use super::requests::{read_body, take_back};
use super::{session_cookie, sockets, streams};
use crate::pool::balancing::worker_load::PoolBackend;
use crate::pool::context::PoolContext;
use crate::pool::error_reply::ErrorReply;
use crate::pool::ring_connection::{RingConnection, SentRequest};

/// Removes and returns the request that was sent to this worker with a ticket, or returns `None` if
/// the response is late.
fn take(backend: &PoolBackend, ticket: u64) -> Option<SentRequest> {
    backend.rings.requests.borrow_mut().take(Ticket::of_word(ticket)?)
}

/// Sends a response to its client. Returns false if the response is invalid.
pub(super) fn on_response(
    pool: &Rc<PoolContext>,
    backend: &Rc<PoolBackend>,
    (id, ticket): (ExchangeId, u64),
    content: ResponseContent<'_>,
    file: Option<File>,
) -> bool {
    let Some(sent) = take(backend, ticket) else {
        end_late(&backend.rings, id);
        return true;
    };
    let ticket = sent.ticket();
    // The timeout takes precedence over a response that has arrived meanwhile. The supervisor
    // records the timeout before it interrupts R, and what R responds to an interrupt is not the
    // app's response.
    if backend.entry.has_timed_out(ticket) {
        end_late(&backend.rings, id);
        pool.responder.reject(take_back(sent, backend), ErrorReply::Timeout);
        return true;
    }
    let SentRequest { mut request, ticket: guard, sent_at, waited } = sent;
    let is_valid = request.exchange.id() == id
        && wire::read_response(
            content,
            &mut request.exchange,
            file,
            pool.limits.max_stream_queue_size,
        )
        .is_ok();
    let now = Instant::now();
    let (counters, response_time) =
        (pool.responder.counters(), now.saturating_duration_since(sent_at));
    request.exchange.update_upstream_log(|upstream| upstream.response_time = Some(response_time));
    // The report is read before the ticket is released, because the next request at the same place
    // overwrites the report.
    if let Some(report) = backend.entry.scoreboard.request_report(ticket) {
        request.exchange.set_app_times(AppTimes { queue: report.queue, app: report.r });
        if !report.route().is_empty() {
            request.exchange.set_route(report.route());
        }
    }
    if request.is_head_only {
        counters.requests.queue_time.add(waited);
    }
    counters.requests.upstream_time.add(response_time);
    counters.requests.request_time.add(now.saturating_duration_since(request.received_at));
    backend.on_response(ticket, sent_at, now);
    drop(guard);
    let is_stream = matches!(request.exchange.response().body(), ResponseBody::Stream(_));
    if !is_stream || !is_valid {
        backend.finish_request();
    }
    if !is_valid {
        backend.release_reservation(request.exchange.id());
        pool.responder.reject(request, ErrorReply::Malformed);
        return false;
    }
    if request.sets_cookie {
        let is_https = request.exchange.is_https();
        let (cookie, session) = pool.balancer.new_cookie(backend, is_https);
        if session_cookie::set_cookie(&mut request.exchange, &cookie) {
            request.exchange.update_upstream_log(|upstream| upstream.session = Some(session));
        }
    }
    if request.exchange.is_upgrade() {
        if request.exchange.response().status() == 101 {
            sockets::open(pool, backend, &request.exchange);
        } else {
            backend.release_reservation(request.exchange.id());
        }
    }
    if is_stream {
        streams::open(pool, backend, &mut request.exchange);
    }
    pool.responder.respond_unannounced(request.exchange);
    true
}

/// Makes the server receive the body of a request whose head the application has inspected. Returns
/// false if the body has been received already.
pub(super) fn on_read_body(
    pool: &Rc<PoolContext>,
    backend: &Rc<PoolBackend>,
    ticket: u64,
    is_head_seen: bool,
) -> bool {
    let Some(sent) = take(backend, ticket) else { return true };
    let has_timed_out = backend.entry.has_timed_out(sent.ticket());
    let request = take_back(sent, backend);
    let is_valid = request.is_head_only;
    if has_timed_out {
        pool.responder.reject(request, ErrorReply::Timeout);
    } else if is_valid {
        read_body(pool, request, is_head_seen);
    } else {
        pool.responder.reject(request, ErrorReply::Malformed);
    }
    is_valid
}

/// Tells the worker that the stream or WebSocket of a late response has ended. A worker ignores the
/// end of a stream or WebSocket that it does not have, so both ends can be sent.
fn end_late(hop: &RingConnection, id: ExchangeId) {
    hop.send(Down::StreamEnded { stream: id, reason: StreamEnd::Timeout });
    hop.send(Down::Closed { socket: id, code: 1006, is_clean: false, reason: b"" });
}

/// Responds with an error, because the worker's response is too long, or its file could not be
/// sent.
pub(super) fn on_unsendable(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, ticket: u64) {
    if let Some(sent) = take(backend, ticket) {
        backend.entry.load.responses.fetch_add(1, Ordering::Relaxed);
        pool.responder.reject(take_back(sent, backend), ErrorReply::Malformed);
    }
}

/// Responds with an error, because this process can open no more descriptors, and so not the file
/// of the response.
pub(super) fn on_file_lost(
    pool: &Rc<PoolContext>,
    backend: &Rc<PoolBackend>,
    (id, ticket): (ExchangeId, u64),
) {
    let Some(sent) = take(backend, ticket) else { return end_late(&backend.rings, id) };
    backend.entry.load.responses.fetch_add(1, Ordering::Relaxed);
    pool.responder.reject(take_back(sent, backend), ErrorReply::NoDescriptor);
}

/// Queues a request for another worker, because this worker does not serve the request any more. A
/// request that has been returned too often is rejected, so that workers cannot decline it forever.
pub(super) fn on_declined(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, ticket: u64) {
    backend.uncount_request();
    let Some(sent) = take(backend, ticket) else { return };
    if backend.entry.scoreboard.has_begun(sent.ticket()) {
        return pool.responder.reject(take_back(sent, backend), ErrorReply::WorkerDied);
    }
    super::ending::requeue_unbegun(pool, backend, sent);
}
