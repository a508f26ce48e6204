//! Requests on their way to a worker.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use rookery_exchange::wire::{self, Down};
use rookery_exchange::{BodySource, Exchange};

use crate::pool::balancing::balancer::Assignment;
use crate::pool::balancing::queue::QueuedRequest;
use crate::pool::balancing::session_affinity::is_only_affinity;
use crate::pool::balancing::worker_load::{Moment, PoolBackend};
use crate::pool::connection::request_writer;
use crate::pool::connection::ring_connection::SentRequest;
use crate::pool::context::PoolContext;
use crate::pool::error_reply::ErrorReply;

/// The headers of a WebSocket handshake, as a client of HTTP/1.1 sends them.
const HANDSHAKE: [(&[u8], &[u8]); 3] =
    [(b"connection", b"Upgrade"), (b"sec-websocket-version", b"13"), (b"upgrade", b"websocket")];

/// Ends a worker's part in a request, without a response, and returns the request.
pub(super) fn end(sent: SentRequest, backend: &PoolBackend) -> QueuedRequest {
    backend.forget_request(sent.ticket());
    backend.finish_request();
    sent.request
}

/// Takes a request back, so that it can be sent to another worker. The session that is reserved for
/// it at this one is not needed any more.
pub(super) fn take_back(sent: SentRequest, backend: &PoolBackend) -> QueuedRequest {
    let request = end(sent, backend);
    if request.has_reservation() {
        backend.release_reservation();
    }
    request
}

/// Returns true if the worker's own server must process this request.
fn is_relayed(assignment: &Assignment) -> bool {
    let entry = &assignment.backend.entry;
    let request = &assignment.request;
    let has_heads = entry.sees_heads() && !request.exchange.body().is_empty();
    request.is_head_only || has_heads || entry.serves_own_files()
}

/// Sends a request to its worker in the rings. Returns the assignment if the request must be
/// relayed instead.
pub(in crate::pool) fn try_send(
    pool: &PoolContext,
    assignment: Assignment,
) -> Result<(), Assignment> {
    if assignment.backend.rings.is_none() || is_relayed(&assignment) {
        return Err(assignment);
    }
    let backend = Rc::clone(&assignment.backend);
    let Some(hop) = &backend.rings else { return Err(assignment) };
    let exchange = &assignment.request.exchange;
    let Moment { instant: sent_at, nanoseconds } = assignment.moment;
    let waited = sent_at.saturating_duration_since(assignment.request.queued_since);
    pool.responder.counters().queue_time.add(waited);
    exchange.update_upstream_log(|upstream| {
        upstream.on_assigned(backend.upstream_worker(), sent_at);
    });
    let mut record = hop.record.take();
    record.clear();
    let times = (assignment.ticket.ticket().word(), nanoseconds);
    write(pool, exchange, times, backend.entry.is_sticky(), &mut record);
    let file = match exchange.body().source() {
        BodySource::File(file) => Some(file),
        BodySource::Empty | BodySource::Memory => None,
    };
    let in_rings = &backend.entry.load.in_rings;
    // Before R can take the request.
    in_rings.fetch_add(1, Ordering::Release);
    let is_sent = hop.send_record(Down::REQUEST, &record, file);
    hop.keep_record(record);
    let Assignment { request, ticket, .. } = assignment;
    let sent = SentRequest { request, ticket, sent_at, waited };
    if is_sent {
        hop.count_unannounced();
        hop.requests.borrow_mut().keep(sent);
    } else {
        in_rings.fetch_sub(1, Ordering::Release);
        pool.responder.reject(end(sent, &backend), ErrorReply::Unsendable);
    }
    Ok(())
}

fn write(
    pool: &PoolContext,
    exchange: &Exchange,
    times: (u64, u64),
    is_sticky: bool,
    record: &mut Vec<u8>,
) {
    let names = pool.balancer.cookie_names();
    let is_upgrade = exchange.is_upgrade();
    let query = exchange.query();
    let query = if is_upgrade && is_sticky && is_only_affinity(query) { b"" } else { query };
    let mut length = [0; 20];
    let length = decimal(exchange.body().len(), &mut length);
    // As in the request that a worker's own server would read.
    let has_length = !exchange.body().is_empty() || exchange.header(b"content-length").is_some();
    let of_length: [(&[u8], &[u8]); 1] = [(b"content-length", length)];
    let added = match is_upgrade {
        true => &HANDSHAKE[..],
        false if has_length => &of_length[..],
        false => &[],
    };
    let accepts_compressed = pool.limits.accepts_compressed || is_upgrade;
    wire::write_request(exchange, query, times, record, added, |name, value, keep| {
        let is_dropped = request_writer::HOP_BY_HOP.iter().any(|other| other.as_bytes() == name)
            || (is_upgrade && name == b"sec-websocket-version")
            || (!accepts_compressed && name == b"accept-encoding");
        if is_dropped {
            return;
        }
        match if name == b"cookie" { names.without_own(value) } else { None } {
            Some(others) if others.is_empty() => {}
            Some(others) => keep(&others),
            None => keep(value),
        }
    });
}

/// Writes a number in decimal digits to the end of `text`, and returns them.
fn decimal(mut number: u64, text: &mut [u8; 20]) -> &[u8] {
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &text[at..];
        }
    }
}
