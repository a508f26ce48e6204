//! A model test of the counts of a worker's requests. After each step of an arbitrary sequence of
//! events, the counts must match the requests that exist.

use std::collections::VecDeque;
use std::sync::Arc;

use rookery_exchange::{
    AppWaker, Command, Event, Exchange, IoWaker, Link, Peer, QueueLimits, Version,
};
use rookery_server::WorkerRings;
use rookery_test_support::Random;
use rookery_worker_protocol::rings::RingEnd;
use rookery_worker_protocol::{SharedScoreboard, Ticket};

use super::waiting_messages::WaitingEvent;
use super::*;
use crate::backend::Backend;
use crate::backend_registry::BackendRegistry;
use crate::pool::balancing::queue::QueuedRequest;
use crate::pool::balancing::session_affinity::{Keys, SessionAffinity};
use crate::pool::dispatch::dispatch;
use crate::pool::limits::PoolLimits;
use crate::pool::ring_connection::SentRequest;
use crate::worker_id::WorkerId;

struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

impl IoWaker for NoWaker {
    fn wake(&self) {}

    fn wake_within(&self, _delay: Duration) -> bool {
        true
    }
}

/// A worker whose R does what the test says.
struct Worker {
    entry: Arc<Backend>,
    scoreboard: SharedScoreboard,
    link: Arc<Link>,
    rings: WorkerRings,
    /// The requests that R has begun and not answered, each with whether R has only its head.
    begun: Vec<(Box<Exchange>, bool)>,
    /// The number of withdrawn requests that R has not skipped yet.
    withdrawn: usize,
}

impl Worker {
    fn start(epoch: u64) -> Worker {
        let (theirs, memory) = SharedScoreboard::create().unwrap();
        let scoreboard = SharedScoreboard::attach(&memory).unwrap();
        let (end, wakers, handles) = RingEnd::create().unwrap();
        let id = WorkerId::new().unwrap();
        let entry = Backend::new((0, epoch), 4711, id, "".into(), theirs, (end, wakers));
        let link = Link::new(QueueLimits::default(), Box::new(NoWaker));
        let rings = WorkerRings::new(handles.attach().unwrap(), &link);
        Worker { entry, scoreboard, link, rings, begun: Vec::new(), withdrawn: 0 }
    }

    /// Takes the next event, as R does.
    fn take(&mut self) {
        let event = self.link.next().or_else(|| self.rings.next(Some(1), &self.link).unwrap());
        let is_head = matches!(event, Some(Event::Head(_)));
        let Some(Event::Request(exchange) | Event::Head(exchange)) = event else { return };
        let ticket = Ticket::of_word(exchange.ticket()).unwrap();
        let is_counted = exchange.has_app_token();
        if !is_counted {
            self.scoreboard.count_taken();
        }
        if self.scoreboard.begin(ticket) {
            self.begun.push((exchange, is_head));
        } else {
            // A request that R has counted before was not withdrawn: it timed out after R had
            // inspected its head.
            self.withdrawn -= usize::from(!is_counted);
            self.rings.send(Command::Respond(exchange), &self.link);
        }
    }

    /// Responds to a request that R has begun, or asks for its body.
    fn answer(&mut self, choice: usize, wants_body: bool) {
        if self.begun.is_empty() {
            return;
        }
        let (mut exchange, is_head) = self.begun.swap_remove(choice % self.begun.len());
        if is_head && wants_body {
            self.rings.send(Command::ReadBody(exchange), &self.link);
        } else {
            exchange.begin_response(200);
            self.rings.send(Command::Respond(exchange), &self.link);
        }
    }

    /// Gives all requests back that R has not taken.
    fn decline(&mut self) {
        self.rings.next(None, &self.link).unwrap();
        self.withdrawn = 0;
    }
}

fn request(id: u64, random: &mut Random) -> QueuedRequest {
    let mut exchange = Exchange::new();
    exchange.begin(id, 1, 0);
    exchange.set_request_line(b"POST", b"/", Version::Http11);
    exchange.end_head(None, None, false);
    let is_head_only = random.below(4) == 0;
    if !is_head_only && random.below(2) == 0 {
        exchange.push_body(b"body");
    }
    QueuedRequest::new(exchange, is_head_only)
}

fn new_pool(registry: &Arc<BackendRegistry>, queue_timeout: Duration) -> Rc<PoolContext> {
    let limits = PoolLimits {
        min_ahead: 5,
        session_affinity: SessionAffinity::None,
        queue_timeout,
        ..PoolLimits::default()
    };
    let keys = Arc::new(Keys::new(""));
    PoolContext::new(Arc::clone(registry), limits, keys, Arc::new(NoWaker))
}

/// Lets arbitrary things happen to the requests of a worker and its successors.
fn run_model(seed: u64) {
    let mut random = Random::new(seed);
    let registry = Arc::new(BackendRegistry::default());
    let pool = new_pool(&registry, Duration::ZERO);
    let update = || {
        pool.balancer.update_backends();
        follow_workers(&pool);
    };
    let mut worker = Worker::start(0);
    registry.add(&worker.entry);
    update();
    for step in 1..=300 {
        let action = random.below(16);
        match action {
            0..=5 => {
                let _ = pool.balancer.enqueue(request(step, &mut random));
                dispatch(&pool);
            }
            6..=8 => worker.take(),
            9..=11 => worker.answer(random.below(64), random.below(2) == 0),
            12 => worker.entry.set_sees_heads(random.below(2) == 0),
            13 => {
                let requests = &pool.hops.workers.borrow()[0].rings.requests;
                let is_waiting = |sent: &&SentRequest| !worker.scoreboard.has_begun(sent.ticket());
                worker.withdrawn += requests.borrow().iter().filter(is_waiting).count();
                withdraw_overdue(&pool);
            }
            14 => worker.decline(),
            _ if random.below(2) == 0 => {
                registry.time_out(&worker.entry);
                update();
            }
            _ => {
                registry.remove(&worker.entry);
                update();
                assert_eq!(worker.entry.load(), (0, 0), "seed {seed}, step {step}: the dead");
                worker = Worker::start(step);
                registry.add(&worker.entry);
                update();
            }
        }
        worker.rings.flush();
        super::run(&pool, dispatch);
        pool.responder.take_commands(&mut VecDeque::new());
        let backend = Rc::clone(&pool.hops.workers.borrow()[0]);
        let requests = backend.rings.requests.borrow();
        let begun = requests.iter().filter(|sent| worker.scoreboard.has_begun(sent.ticket()));
        let (sent, begun) = (requests.iter().count(), begun.count());
        let context = format!("seed {seed}, step {step}, action {action}");
        let waiting = backend.entry.read_scoreboard().queued() as usize;
        assert_eq!(waiting, sent - begun + worker.withdrawn, "{context}");
        assert_eq!(backend.entry.load(), (sent, 0), "{context}");
        assert_eq!(backend.has_in_flight(), sent > 0, "{context}");
    }
}

#[test]
fn the_counts_of_requests_do_not_drift() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    (0..100).for_each(run_model);
}

#[test]
fn the_session_of_a_request_that_ends_with_an_error_is_not_reserved_any_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let registry = Arc::new(BackendRegistry::default());
    let pool = new_pool(&registry, Duration::ZERO);
    let worker = Worker::start(0);
    registry.add(&worker.entry);
    pool.balancer.update_backends();
    follow_workers(&pool);
    let mut exchange = Exchange::new();
    exchange.begin(1, 1, 0);
    exchange.set_request_line(b"GET", b"/", Version::Http11);
    exchange.end_head(None, None, true);
    assert!(pool.balancer.enqueue(QueuedRequest::new(exchange, false)).is_ok());
    dispatch(&pool);
    let backend = Rc::clone(&pool.hops.workers.borrow()[0]);
    let reserved = || backend.entry.load.pending_sessions.get();
    assert_eq!(reserved(), 1);
    let ticket = backend.rings.requests.borrow().iter().next().map(SentRequest::ticket);
    responses::on_unsendable(&pool, &backend, ticket.unwrap().word());
    assert_eq!(reserved(), 0);
}

#[test]
fn a_websocket_without_a_reservation_releases_none_of_another_network() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let registry = Arc::new(BackendRegistry::default());
    let pool = new_pool(&registry, Duration::ZERO);
    let mut worker = Worker::start(0);
    registry.add(&worker.entry);
    pool.balancer.update_backends();
    follow_workers(&pool);
    let backend = Rc::clone(&pool.hops.workers.borrow()[0]);
    let reserved = || backend.entry.load.pending_sessions.get();
    for id in 1..=3 {
        let mut exchange = Exchange::new();
        exchange.begin(id, 1, 0);
        exchange.set_peer(Peer::new(id, id));
        exchange.set_request_line(b"GET", b"/", Version::Http11);
        exchange.end_head(None, None, true);
        assert!(pool.balancer.enqueue(QueuedRequest::new(exchange, false)).is_ok());
    }
    dispatch(&pool);
    assert_eq!(reserved(), 3);
    // The second and third requests lose their reservations, as to those of smaller networks.
    (2..=3).for_each(|id| backend.release_reservation(id));
    super::run(&pool, dispatch);
    (0..3).for_each(|_| worker.take());
    for (id, status, left) in [(2, 403, 1), (3, 101, 1), (1, 101, 0)] {
        let at =
            worker.begun.iter().position(|(exchange, _)| exchange.id() & 0xFFFF == id).unwrap();
        let (mut exchange, _) = worker.begun.swap_remove(at);
        exchange.begin_response(status);
        worker.rings.send(Command::Respond(exchange), &worker.link);
        worker.rings.flush();
        super::run(&pool, dispatch);
        assert_eq!(reserved(), left, "after {status} to {id}");
    }
    assert_eq!(backend.entry.load.sessions.load(std::sync::atomic::Ordering::Relaxed), 2);
}

/// Lets R take all events, and returns what they are: 0 for a request, to which R responds at once,
/// or the WebSocket of a message.
fn take_all(pool: &Rc<PoolContext>, worker: &mut Worker) -> Vec<u64> {
    let mut taken = Vec::new();
    for _ in 0..1000 {
        super::run(pool, dispatch);
        pool.responder.take_commands(&mut VecDeque::new());
        match worker.rings.next(Some(1), &worker.link).unwrap() {
            Some(Event::Request(mut exchange)) => {
                worker.scoreboard.count_taken();
                assert!(worker.scoreboard.begin(Ticket::of_word(exchange.ticket()).unwrap()));
                exchange.begin_response(200);
                worker.rings.send(Command::Respond(exchange), &worker.link);
                worker.rings.flush();
                taken.push(0);
            }
            Some(Event::Message { socket, .. }) => taken.push(socket & 0xFFFF),
            _ => {}
        }
    }
    taken
}

#[test]
fn between_the_parts_of_a_message_come_no_requests_and_between_two_messages_comes_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let tasks = tokio::task::LocalSet::new();
    let _tasks = tasks.enter();
    let registry = Arc::new(BackendRegistry::default());
    let pool = new_pool(&registry, Duration::from_secs(60));
    let mut worker = Worker::start(0);
    registry.add(&worker.entry);
    pool.balancer.update_backends();
    follow_workers(&pool);
    let backend = Rc::clone(&pool.hops.workers.borrow()[0]);
    let send = |network: u64, socket: u64, len: usize| {
        let message = WaitingEvent::message(Peer::new(network, network), socket, vec![b'm'; len]);
        sockets::send_in_turn(&pool, &backend, message);
    };
    // Each long message fills the blocks for messages several times.
    (1..=3).for_each(|socket| send(1, socket, 100 * MAX_RECORD_LEN));
    let mut random = Random::new(1);
    for id in 1..=100 {
        let mut request = request(id, &mut random);
        request.is_head_only = false;
        request.exchange.set_peer(Peer::new(1, 1));
        pool.balancer.enqueue(request).unwrap();
    }
    send(2, 20, 1);
    let taken = take_all(&pool, &mut worker);
    let at = |socket: u64| taken.iter().position(|it| *it == socket).unwrap();
    assert!(at(20) <= 2 + 2 * 5, "five may be ahead of each message: {taken:?}");
    assert!(at(1) + 1 < at(2) && at(2) + 1 < at(3), "requests have turns: {taken:?}");
    assert_eq!(taken.len(), 104, "{taken:?}");
}
