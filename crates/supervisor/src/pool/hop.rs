//! The hop: requests and WebSocket messages that cross to a worker in shared memory (the rings of
//! `rookery_worker_protocol`), while the client's connection stays in this process.
//!
//! A spike: bodies in memory only, no withdrawal of late requests, and no recovery when a worker
//! dies.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rookery_exchange::wire::{self, kind};
use rookery_exchange::{
    AppTimes, BodySource, Command, Exchange, MessageKind, Payload, WebSocketId,
};
use rookery_worker_protocol::Ticket;
use rookery_worker_protocol::rings::{
    Receiver, RingEnd, RingWakers, SendError, Sender, Sleep, SleepWord,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::balancing::balancer::Assignment;
use super::balancing::worker_load::{Moment, PoolBackend};
use super::connection::response_headers;
use super::context::PoolContext;
use super::dispatch::dispatch;
use super::error_reply::ErrorReply;

/// The maximum length of a request body that is sent in a record.
const MAX_BODY: u64 = 64 << 10;

/// The number of records after which a sleeping worker is woken, even if this thread has more to
/// read.
const WAKE_BATCH: u32 = 32;

/// The request headers that apply to the client's connection, and not to the app.
const HOP_BY_HOP: [&[u8]; 8] = [
    b"connection",
    b"expect",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

/// This process's end of the rings to one worker.
pub(super) struct Hop {
    sender: RefCell<Sender>,
    receiver: RefCell<Receiver>,
    own_sleep: SleepWord,
    worker_sleep: SleepWord,
    wakers: RingWakers,
    /// The requests that were sent to the worker, at the places of their tickets.
    requests: RefCell<Vec<Option<SentRequest>>>,
    /// The records that wait for a free block.
    unsent: RefCell<VecDeque<(u8, Vec<u8>)>>,
    /// The record that is being written or read.
    record: RefCell<Vec<u8>>,
    /// The number of records since the worker was last woken.
    unannounced: Cell<u32>,
    /// Ends the sleep of this thread's runtime. Nothing waits for them.
    _registrations: Vec<AsyncFd<Arc<OwnedFd>>>,
}

/// A request that was sent to a worker.
struct SentRequest {
    assignment: Assignment,
    sent_at: Instant,
    waited: Duration,
}

/// The WebSockets of this process whose messages cross to workers.
#[derive(Default)]
pub(super) struct HopSockets(RefCell<HashMap<WebSocketId, Rc<PoolBackend>>>);

impl fmt::Debug for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hop").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl Hop {
    /// Must be called within the runtime of the I/O thread.
    pub(super) fn new((end, wakers): (RingEnd, RingWakers)) -> Hop {
        let register = |fd| {
            // SAFETY: the value owns the descriptor, which stays open and unchanged.
            unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.ok()
        };
        let registrations = wakers.watched_by_front_end().into_iter().filter_map(register);
        Hop {
            sender: RefCell::new(end.sender),
            receiver: RefCell::new(end.receiver),
            own_sleep: end.own_sleep,
            worker_sleep: end.peer_sleep,
            requests: RefCell::default(),
            unsent: RefCell::default(),
            record: RefCell::default(),
            unannounced: Cell::new(0),
            _registrations: registrations.collect(),
            wakers,
        }
    }

    /// Sends a record, or keeps it until there is a free block.
    fn send(&self, kind: u8, record: &[u8]) {
        let mut unsent = self.unsent.borrow_mut();
        let is_sent = unsent.is_empty()
            && self.sender.borrow_mut().send(kind, record) != Err(SendError::Full);
        if !is_sent {
            unsent.push_back((kind, record.to_owned()));
        }
        self.unannounced.set(self.unannounced.get() + 1);
        if self.unannounced.get() >= WAKE_BATCH {
            self.wake_worker();
        }
    }

    /// Sends the records that waited for a free block, and wakes the worker if records were sent.
    fn flush(&self) {
        let mut unsent = self.unsent.borrow_mut();
        while let Some((kind, record)) = unsent.front() {
            if self.sender.borrow_mut().send(*kind, record) == Err(SendError::Full) {
                break;
            }
            unsent.pop_front();
        }
        if self.unannounced.get() > 0 {
            self.wake_worker();
        }
    }

    fn wake_worker(&self) {
        self.unannounced.set(0);
        match self.worker_sleep.take_sleep() {
            Sleep::Awake => {}
            Sleep::Waiting => self.worker_sleep.wake(),
            Sleep::Polling => self.wakers.wake_worker(),
        }
    }

    /// Announces that this thread is about to sleep. Returns false if records have arrived.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.own_sleep.announce(Sleep::Polling);
        !self.receiver.borrow().has_any()
    }

    pub(super) fn on_wake(&self) {
        self.own_sleep.set_awake();
    }

    fn keep(&self, request: SentRequest) {
        let place = request.assignment.ticket.ticket().place();
        let mut requests = self.requests.borrow_mut();
        if requests.len() <= place {
            requests.resize_with(place + 1, || None);
        }
        requests[place] = Some(request);
    }

    /// Removes and returns the request with this ticket. A response with another ticket is late.
    fn take(&self, ticket: u64) -> Option<SentRequest> {
        let ticket = Ticket::of_word(ticket)?;
        let mut requests = self.requests.borrow_mut();
        requests
            .get_mut(ticket.place())?
            .take_if(|request| request.assignment.ticket.ticket() == ticket)
    }
}

/// Sends a request to its worker in the rings. Returns the assignment if the request must be
/// relayed instead.
pub(super) fn try_send(pool: &PoolContext, assignment: Assignment) -> Result<(), Assignment> {
    let Some(hop) = &assignment.backend.hop else { return Err(assignment) };
    let exchange = &assignment.request.exchange;
    if assignment.request.is_head_only
        || matches!(exchange.body().source(), BodySource::File(_))
        || exchange.body().len() > MAX_BODY
        || exchange.client().is_some()
    {
        return Err(assignment);
    }
    let Moment { instant: sent_at, nanoseconds } = assignment.moment;
    let waited = sent_at.duration_since(assignment.request.queued_since);
    pool.responder.counters().queue_time.add(waited);
    exchange.update_upstream_log(|upstream| {
        upstream.on_assigned(assignment.backend.upstream_worker(), sent_at);
    });
    let mut record = hop.record.borrow_mut();
    record.clear();
    let ticket = assignment.ticket.ticket().word();
    let names = pool.balancer.cookie_names();
    wire::write_request(exchange, (ticket, nanoseconds), &mut record, |name, value, keep| {
        if HOP_BY_HOP.contains(&name) && !(exchange.is_upgrade() && name == b"upgrade") {
            return;
        }
        match if name == b"cookie" { names.without_own(value) } else { None } {
            Some(others) if others.is_empty() => {}
            Some(others) => keep(&others),
            None => keep(value),
        }
    });
    hop.send(kind::REQUEST, &record);
    drop(record);
    let backend = Rc::clone(&assignment.backend);
    let hop = backend.hop.as_ref().expect("checked above");
    hop.keep(SentRequest { assignment, sent_at, waited });
    Ok(())
}

/// Takes what the workers have sent, assigns further requests, and wakes the workers that have got
/// any.
pub(super) fn run(pool: &Rc<PoolContext>) {
    let mut has_responses = false;
    for backend in pool.hops.borrow().iter() {
        if let Some(hop) = &backend.hop {
            has_responses |= receive(pool, backend, hop);
        }
    }
    if has_responses {
        dispatch(pool);
    }
    for backend in pool.hops.borrow().iter() {
        if let Some(hop) = &backend.hop {
            hop.flush();
        }
    }
}

/// Takes what a worker has sent. Returns true if responses have arrived.
fn receive(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, hop: &Hop) -> bool {
    let mut record = hop.record.take();
    let mut has_responses = false;
    loop {
        let taken = hop.receiver.borrow_mut().take(&mut record);
        match taken {
            Ok(Some(kind::RESPONSE)) => {
                has_responses = true;
                on_response(pool, backend, hop, &record);
            }
            Ok(Some(kind)) => on_socket_command(pool, kind, &record),
            Ok(None) => break,
            Err(_) => {
                // In the spike, nothing ends a worker that violates the protocol.
                backend.suspect();
                break;
            }
        }
    }
    hop.record.replace(record);
    has_responses
}

fn on_response(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, hop: &Hop, record: &[u8]) {
    let Ok((_, ticket)) = wire::read_ids(record) else { return backend.suspect() };
    let Some(SentRequest { assignment, sent_at, waited }) = hop.take(ticket) else { return };
    let Assignment { mut request, ticket: guard, .. } = assignment;
    let ticket = guard.ticket();
    let is_valid = wire::read_response(record, &mut request.exchange).is_ok();
    let now = Instant::now();
    let (counters, response_time) =
        (pool.responder.counters(), now.saturating_duration_since(sent_at));
    request.exchange.update_upstream_log(|upstream| upstream.response_time = Some(response_time));
    if let Some(report) = backend.entry.scoreboard.request_report(ticket) {
        request.exchange.set_app_times(AppTimes { queue: report.queue, app: report.r });
        if !report.route().is_empty() {
            request.exchange.set_route(report.route());
        }
    }
    if request.is_head_only {
        counters.queue_time.add(waited);
    }
    counters.upstream_time.add(response_time);
    counters.request_time.add(now.saturating_duration_since(request.received_at));
    backend.on_response(ticket, sent_at, now);
    drop(guard);
    backend.finish_request();
    if !is_valid {
        return pool.responder.reject(request, ErrorReply::Malformed);
    }
    if request.sets_cookie {
        let is_https = request.exchange.is_https();
        let (cookie, session) = pool.balancer.new_cookie(backend, is_https);
        if response_headers::set_cookie(&mut request.exchange, &cookie) {
            request.exchange.update_upstream_log(|upstream| upstream.session = Some(session));
        }
    }
    if request.exchange.is_upgrade() {
        backend.release_reservation();
        if request.exchange.response().status() == 101 {
            open_socket(pool, backend, &request.exchange);
        }
    }
    pool.responder.respond_unannounced(request.exchange);
}

// ---- WebSockets ----

fn open_socket(pool: &Rc<PoolContext>, backend: &Rc<PoolBackend>, exchange: &Exchange) {
    pool.balancer.count_reconnect(exchange, backend);
    backend.entry.load.sessions.fetch_add(1, Ordering::Relaxed);
    pool.hop_sockets.0.borrow_mut().insert(exchange.id(), Rc::clone(backend));
}

/// Sends a message of a WebSocket to its worker.
pub(super) fn on_message(
    pool: &PoolContext,
    socket: WebSocketId,
    kind: MessageKind,
    payload: Payload,
) {
    if let Some(backend) = pool.hop_sockets.0.borrow().get(&socket) {
        if let Some(hop) = &backend.hop {
            let mut record = hop.record.borrow_mut();
            record.clear();
            record.extend_from_slice(&socket.to_le_bytes());
            record.extend_from_slice(payload.as_bytes());
            let kind = if kind == MessageKind::Text { kind::TEXT } else { kind::BINARY };
            hop.send(kind, &record);
            pool.has_forwarded.set(true);
        }
    }
    if let Payload::Pooled(buffer) = payload {
        pool.buffers.put(buffer);
    }
}

/// Tells a worker that a WebSocket has ended. Returns false if the WebSocket is none of the rings'.
pub(super) fn on_closed(
    pool: &PoolContext,
    socket: WebSocketId,
    (code, is_clean): (u16, bool),
    reason: &str,
) -> bool {
    let Some(backend) = pool.hop_sockets.0.borrow_mut().remove(&socket) else { return false };
    backend.entry.load.sessions.fetch_sub(1, Ordering::Relaxed);
    if let Some(hop) = &backend.hop {
        let mut record = socket.to_le_bytes().to_vec();
        record.extend_from_slice(&code.to_le_bytes());
        record.push(u8::from(is_clean));
        record.extend_from_slice(reason.as_bytes());
        hop.send(kind::CLOSE, &record);
    }
    true
}

/// Carries out a worker's command for one of its WebSockets.
fn on_socket_command(pool: &PoolContext, kind: u8, record: &[u8]) {
    let Some((id, content)) = record.split_first_chunk() else { return };
    let socket = u64::from_le_bytes(*id);
    let command = match (kind, content) {
        (kind::TEXT | kind::BINARY, content) => {
            let is_text = kind == kind::TEXT;
            if is_text && std::str::from_utf8(content).is_err() {
                return;
            }
            let kind = if is_text { MessageKind::Text } else { MessageKind::Binary };
            let mut buffer = pool.buffers.take();
            buffer.extend_from_slice(content);
            Command::Send { socket, kind, payload: Payload::Pooled(buffer) }
        }
        (kind::PING, _) => Command::Ping { socket },
        (kind::CLOSE, [low, high, _, reason @ ..]) if reason.len() <= 123 => {
            let code = u16::from_le_bytes([*low, *high]);
            Command::Close { socket, code, reason: reason.to_vec() }
        }
        (kind::ABORT, _) => Command::Abort { socket },
        _ => return,
    };
    pool.responder.send_unannounced(command);
}
