//! Requests on their way to a worker.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;

use rookery_exchange::wire::{self, RequestForm};
use rookery_exchange::{BodySource, Command, Exchange};
use rookery_worker_protocol::rings::{Beside, Lane};

use crate::pool::balancing::balancer::Assignment;
use crate::pool::balancing::queue::QueuedRequest;
use crate::pool::balancing::session_affinity::is_only_affinity;
use crate::pool::balancing::worker_load::{Moment, PoolBackend};
use crate::pool::context::PoolContext;
use crate::pool::error_reply::ErrorReply;
use crate::pool::ring_connection::SentRequest;

/// The request headers that are not sent to workers, because they apply to one connection or frame
/// a message (RFC 9110, 7.6.1). Headers that a client's `Connection` header names are sent
/// nevertheless. Otherwise, a client could remove a header that a proxy in front of this server has
/// added.
const HOP_BY_HOP: [&[u8]; 9] = [
    b"connection",
    b"content-length",
    b"expect",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// The headers of a WebSocket handshake, as a client of HTTP/1.1 sends them.
const HANDSHAKE: [(&[u8], &[u8]); 3] =
    [(b"connection", b"Upgrade"), (b"sec-websocket-version", b"13"), (b"upgrade", b"websocket")];

/// Takes a request back from its worker, which has not responded to it. Releases the session that
/// was reserved for the request at the worker.
pub(super) fn take_back(sent: SentRequest, backend: &PoolBackend) -> QueuedRequest {
    backend.forget_request(sent.ticket());
    backend.finish_request();
    backend.release_reservation(sent.request.exchange.id());
    sent.request
}

/// Returns the form in which a request is sent to a worker.
fn form(request: &QueuedRequest, backend: &PoolBackend) -> RequestForm {
    let exchange = &request.exchange;
    if request.is_head_only {
        RequestForm::HeadOnly
    } else if backend.entry.sees_heads() && !exchange.is_head_seen() && !exchange.body().is_empty()
    {
        RequestForm::HeadFirst
    } else {
        RequestForm::Complete
    }
}

/// Makes the server receive the body of a request, whose head an application has accepted if
/// `is_head_seen`.
pub(super) fn read_body(pool: &PoolContext, request: QueuedRequest, is_head_seen: bool) {
    let mut exchange = request.exchange;
    if is_head_seen {
        exchange.set_head_seen();
    }
    pool.responder.send_command(Command::ReadBody(exchange));
}

/// Sends a request to its worker.
pub(in crate::pool) fn send(pool: &PoolContext, assignment: Assignment) {
    let Assignment { backend, request, ticket, moment } = assignment;
    let hop = &backend.rings;
    let form = form(&request, &backend);
    if form == RequestForm::HeadOnly && !backend.entry.sees_heads() {
        backend.forget_request(ticket.ticket());
        backend.uncount_request();
        backend.finish_request();
        return read_body(pool, request, true);
    }
    let exchange = &request.exchange;
    let Moment { instant: sent_at, nanoseconds } = moment;
    let waited = sent_at.saturating_duration_since(request.queued_since);
    // The queue time of a request whose head is sent first counts once: with the body, or with the
    // response if the application responds to the head.
    if form != RequestForm::HeadOnly {
        pool.responder.counters().requests.queue_time.add(waited);
    }
    exchange.update_upstream_log(|upstream| {
        upstream.on_assigned(backend.upstream_worker(), sent_at);
    });
    let times = (ticket.ticket().word(), nanoseconds);
    let file = match exchange.body().source() {
        BodySource::File(file) => Some(file),
        BodySource::Empty | BodySource::Memory => None,
    };
    let beside = Beside { descriptor: file.map(File::as_fd), tail: b"" };
    hop.messages.borrow_mut().before_request(&mut hop.outbox.borrow_mut());
    let is_sent = hop.send_record(Lane::Requests, beside, None, |record| {
        write(pool, exchange, (form, times), backend.entry.is_sticky(), record);
        Some(form.kind())
    });
    let sent = SentRequest { request, ticket, sent_at, waited };
    if is_sent {
        hop.count_unannounced();
        hop.messages.borrow_mut().on_request_sent(hop.outbox.borrow().sender().sent());
        hop.requests.borrow_mut().keep(sent);
    } else {
        backend.uncount_request();
        pool.responder.reject(take_back(sent, &backend), ErrorReply::Unsendable);
    }
}

fn write(
    pool: &PoolContext,
    exchange: &Exchange,
    (form, times): (RequestForm, (u64, u64)),
    is_sticky: bool,
    record: &mut Vec<u8>,
) {
    let names = pool.balancer.cookie_names();
    let is_upgrade = exchange.is_upgrade();
    let query = exchange.query();
    let query = if is_upgrade && is_sticky && is_only_affinity(query) { b"" } else { query };
    // If the body has not been received, the client's own headers about the body are passed on.
    let is_head_only = form == RequestForm::HeadOnly;
    let has_length = !exchange.body().is_empty()
        || (exchange.header(b"content-length").is_some() && !is_head_only);
    let mut digits = [0; 20];
    let mut free = &mut digits[..];
    if has_length {
        write!(free, "{}", exchange.body().len()).expect("a number has at most 20 digits");
    }
    let unused = free.len();
    let of_length: [(&[u8], &[u8]); 1] = [(b"content-length", &digits[..digits.len() - unused])];
    let added = match is_upgrade {
        true => &HANDSHAKE[..],
        false if has_length => &of_length[..],
        false => &[],
    };
    let accepts_compressed = pool.limits.accepts_compressed || is_upgrade;
    wire::write_request(exchange, query, times, record, added, |name, value, keep| {
        let is_framing = name == b"content-length" || name == b"transfer-encoding";
        let is_dropped = (HOP_BY_HOP.contains(&name) && !(is_framing && is_head_only))
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
