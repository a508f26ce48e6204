use std::collections::VecDeque;

use rookery_exchange::{Command, IoWaker, Peer};
use rookery_test_support::wait_until;
use rookery_worker_protocol::rings::RingEnd;
use rookery_worker_protocol::{RState, SharedScoreboard, now};

use super::*;
use crate::backend::Backend;
use crate::pool::balancing::session_affinity::RequestKind;
use crate::pool::hop::waiting_messages::WaitingEvent;
use crate::worker_id::WorkerId;

struct NoWaker;

impl IoWaker for NoWaker {
    fn wake(&self) {}

    fn wake_within(&self, _within: Duration) -> bool {
        true
    }
}

/// Runs a test with a balancer whose only worker is suspended and therefore gets no requests.
fn with_a_suspended_worker(
    limits: PoolLimits,
    test: impl FnOnce(&Balancer, &BackendRegistry, &Arc<Backend>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _entered = runtime.enter();
    let scoreboard = SharedScoreboard::private();
    let (end, wakers, _handles) = RingEnd::create().unwrap();
    let id = WorkerId::new().unwrap();
    let backend = Backend::new((0, 1), 4711, id, "".into(), scoreboard, (end, wakers));
    let registry = Arc::new(BackendRegistry::default());
    registry.add(&backend);
    registry.suspend(&backend);
    let responder = Rc::new(Responder::new(Arc::clone(&registry), Arc::new(NoWaker)));
    let keys = Arc::new(Keys::new(""));
    let balancer = Balancer::new(Rc::new(limits), Arc::clone(&registry), responder, keys);
    balancer.update_backends();
    test(&balancer, &registry, &backend);
}

fn request(id: u64, cookie: &str) -> QueuedRequest {
    let mut exchange = Exchange::new();
    exchange.begin(id, 1, 0);
    exchange.set_request_line(b"GET", b"/", rookery_exchange::Version::Http11);
    exchange.push_header(b"cookie", cookie.as_bytes());
    exchange.end_head(None, None, false);
    QueuedRequest::new(exchange, false)
}

/// Makes the balancer assign requests to workers and returns the number of assignments. The
/// assignments are leaked, so that their requests stay in flight.
fn assign(balancer: &Balancer) -> usize {
    let mut assignments = Vec::new();
    balancer.assign(&mut assignments);
    for assignment in &assignments {
        assert_eq!(assignment.backend.entry.epoch, 1);
    }
    let count = assignments.len();
    std::mem::forget(assignments);
    count
}

#[test]
fn parked_requests_are_examined_only_once_until_the_workers_change() {
    const COUNT: u64 = 1000;
    let limits = PoolLimits { session_affinity: SessionAffinity::Cookie, ..PoolLimits::default() };
    with_a_suspended_worker(limits, |balancer, registry, backend| {
        for id in 1..=COUNT {
            balancer.enqueue(request(id, "rookery=forged")).unwrap();
            assert_eq!(assign(balancer), 0);
        }
        // The pool calls this after each response and whenever the retry timer expires.
        for _ in 0..100 {
            assert_eq!(assign(balancer), 0);
        }
        assert_eq!(balancer.examined.get(), COUNT);
        assert_eq!(balancer.counters().queue.read().length, COUNT);
        // The registry has changed, but no worker is ready.
        balancer.update_backends();
        assert_eq!(assign(balancer), 0);
        assert_eq!(balancer.examined.get(), 2 * COUNT);
        registry.resume(backend);
        balancer.update_backends();
        let assigned = assign(balancer) as u64;
        // Requests that R cannot begin stay parked and are not routed again after each response.
        assert_eq!(balancer.examined.get(), 3 * COUNT);
        assert_eq!(balancer.assigned(), assigned);
        assert_eq!(assigned + balancer.counters().queue.read().length, COUNT);
        for _ in 0..100 {
            assign(balancer);
        }
        assert_eq!(balancer.examined.get(), 3 * COUNT);
        assert_eq!(balancer.counters().invalid_cookies.get(), COUNT);
    });
}

#[test]
fn overdue_and_disconnected_requests_are_removed_without_being_examined() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        queue_timeout: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits, |balancer, _, _| {
        let [mut late, leaving, staying] = [1, 2, 3].map(|id| request(id, ""));
        // This request returned from a worker and became the first of the queue, although other
        // requests are older.
        late.queued_since = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        let status = leaving.exchange.shared_status();
        let returned = request(4, "");
        for request in [staying, leaving] {
            balancer.enqueue(request).unwrap();
        }
        balancer.requeue(returned, Duration::ZERO);
        assert_eq!(assign(balancer), 0);
        let examined = balancer.examined.get();
        balancer.queue.borrow_mut().park(late);
        status.set_disconnected();
        balancer.on_client_disconnect();
        assert_eq!(assign(balancer), 0);
        assert_eq!(balancer.examined.get(), examined);
        assert_eq!(balancer.counters().rejected_timeout.get(), 1);
        let mut commands = VecDeque::new();
        balancer.responder.take_commands(&mut commands);
        let mut responses: Vec<_> = commands
            .iter()
            .map(|command| match command {
                Command::Respond(exchange) => (exchange.id(), exchange.response().status()),
                other => panic!("{other:?}"),
            })
            .collect();
        responses.sort_unstable();
        // The client that has disconnected gets no response.
        assert_eq!((responses[0], responses[1].0, responses.len()), ((1, 503), 2, 2));
        assert_eq!(balancer.counters().queue.read().length, 2);
    });
}

#[test]
fn a_request_that_no_worker_begins_is_rejected_after_one_queue_timeout() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        queue_timeout: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits, |balancer, _, _| {
        let backend = Rc::clone(&balancer.backends.borrow()[0]);
        let mut late = request(1, "");
        late.kind = Some(RequestKind::Page);
        late.queued_since = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        // Its worker has not begun it in time, and no other worker is free.
        balancer.requeue_unbegun(late, &backend);
        assert_eq!(balancer.counters().rejected_timeout.get(), 0);
        wait_until("it is rejected", || {
            assert_eq!(assign(balancer), 0);
            balancer.counters().rejected_timeout.get() == 1
        });
    });
}

#[test]
fn the_next_check_follows_when_a_request_at_a_worker_becomes_overdue() {
    let limits = PoolLimits { queue_timeout: Duration::from_secs(60), ..PoolLimits::default() };
    with_a_suspended_worker(limits, |balancer, _, _| {
        assert_eq!(balancer.time_until_overdue(), None);
        let backend = Rc::clone(&balancer.backends.borrow()[0]);
        // The first one is overdue already, and is found by the regular checks.
        let _tickets = [70, 20, 50].map(|seconds| {
            let since = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
            backend.start_request(Peer::default(), since).unwrap()
        });
        let left = balancer.time_until_overdue().unwrap();
        assert!(left > Duration::ZERO && left <= Duration::from_secs(10), "{left:?}");
    });
}

#[test]
fn a_returned_request_does_not_hide_an_older_one_from_its_timeout() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::None,
        queue_timeout: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits, |balancer, _, _| {
        let mut old = request(1, "");
        old.queued_since = Instant::now().checked_sub(Duration::from_secs(59)).unwrap();
        balancer.enqueue(old).unwrap();
        balancer.requeue(request(2, ""), Duration::ZERO);
        // A request that has waited before is inserted by its waiting time.
        balancer.requeue(request(3, ""), Duration::from_secs(30));
        assert_eq!(assign(balancer), 0);
        let order: Vec<_> = std::iter::from_fn(|| balancer.queue.borrow_mut().pop()).collect();
        assert_eq!(
            order.iter().map(|request| request.exchange.id()).collect::<Vec<_>>(),
            [1, 3, 2]
        );
    });
}

#[test]
fn a_page_is_rejected_while_sessions_and_reservations_reach_the_maximum() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        max_sessions: 2,
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits.clone(), |balancer, registry, backend| {
        registry.resume(backend);
        balancer.update_backends();
        let worker = Rc::clone(&balancer.backends.borrow()[0]);
        worker.begin_session(3, Peer::default());
        worker.reserve_session(1, Peer::default(), &limits);
        balancer.enqueue(request(2, "")).unwrap();
        assert_eq!(assign(balancer), 0);
        assert_eq!(balancer.counters().rejected_sessions.get(), 1);
        let mut commands = VecDeque::new();
        balancer.responder.take_commands(&mut commands);
        let Some(Command::Respond(exchange)) = commands.pop_front() else { panic!("a response") };
        assert_eq!((exchange.id(), exchange.response().status()), (2, 503));
    });
}

#[test]
fn a_session_request_that_waits_too_long_for_its_worker_is_rejected() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        queue_timeout: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits, |balancer, _, _| {
        let worker = Rc::clone(&balancer.backends.borrow()[0]);
        let [mut late, mut early] = [1, 2].map(|id| request(id, ""));
        late.queued_since = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        for request in [&mut late, &mut early] {
            request.kind = Some(RequestKind::SessionResource);
        }
        worker.queue.borrow_mut().insert(late);
        worker.queue.borrow_mut().insert(early);
        // No further request arrives.
        assert_eq!(assign(balancer), 0);
        assert_eq!(balancer.counters().rejected_timeout.get(), 1);
        let left = worker.queue.borrow_mut().pop().map(|request| request.exchange.id());
        assert_eq!((left, worker.queue.borrow().is_empty()), (Some(2), true));
    });
}

/// Lets R begin the only request that is assigned now. Returns the id of that request.
fn assign_and_begin(balancer: &Balancer, backend: &Backend) -> u64 {
    let mut assignments = Vec::new();
    balancer.assign(&mut assignments);
    let assignment = assignments.pop().unwrap();
    assert!(assignments.is_empty(), "R has not begun the request before");
    backend.scoreboard.count_taken();
    assert!(backend.scoreboard.begin(assignment.ticket.ticket()));
    let id = assignment.request.exchange.id();
    std::mem::forget(assignment);
    id
}

#[test]
fn requests_that_name_a_worker_and_others_take_turns_there() {
    let limits = PoolLimits { session_affinity: SessionAffinity::Cookie, ..PoolLimits::default() };
    with_a_suspended_worker(limits, |balancer, registry, backend| {
        registry.resume(backend);
        balancer.update_backends();
        backend.scoreboard.set_r_state(RState::Busy, now());
        let worker = Rc::clone(&balancer.backends.borrow()[0]);
        let (cookie, _) = balancer.new_cookie(&worker, false);
        let own = cookie.split(';').next().unwrap();
        for (id, cookie) in (1..=6).map(|id| (id, own)).chain((7..=9).map(|id| (id, ""))) {
            balancer.enqueue(request(id, cookie)).unwrap();
        }
        let order = [(); 9].map(|()| assign_and_begin(balancer, backend));
        assert_eq!(order, [1, 7, 2, 8, 3, 9, 4, 5, 6]);
    });
}

#[test]
fn while_messages_keep_r_busy_one_request_waits_at_the_worker() {
    with_a_suspended_worker(PoolLimits::default(), |balancer, registry, backend| {
        registry.resume(backend);
        balancer.update_backends();
        backend.scoreboard.set_r_state(RState::Busy, now());
        (1..=3).for_each(|id| balancer.enqueue(request(id, "")).unwrap());
        assert_eq!(assign(balancer), 0, "R may be free elsewhere before");
        let worker = Rc::clone(&balancer.backends.borrow()[0]);
        let event = WaitingEvent::message(Peer::default(), 1, vec![b'm']);
        worker.rings.messages.borrow_mut().push(event, &mut worker.rings.outbox.borrow_mut());
        for id in 1..=3 {
            assert_eq!(assign_and_begin(balancer, backend), id);
        }
    });
}

#[test]
fn the_requests_of_a_network_that_has_all_places_are_passed_over() {
    for affinity in [SessionAffinity::None, SessionAffinity::Cookie] {
        let limits =
            PoolLimits { session_affinity: affinity, max_in_flight: 4, ..PoolLimits::default() };
        with_a_suspended_worker(limits, |balancer, registry, backend| {
            registry.resume(backend);
            balancer.update_backends();
            backend.scoreboard.set_r_state(RState::Idle, now());
            let worker = Rc::clone(&balancer.backends.borrow()[0]);
            let (cookie, _) = balancer.new_cookie(&worker, false);
            let own = cookie.split(';').next().unwrap();
            let enqueue = |network: u64, id: u64, cookie: &str| {
                let mut request = request(id, cookie);
                request.exchange.set_peer(Peer::new(network, network));
                balancer.enqueue(request).unwrap();
            };
            for cookie in ["", own] {
                (1..=9).for_each(|id| enqueue(1, id, cookie));
            }
            for _ in 0..4 {
                assert!(assign_and_begin(balancer, backend) <= 9);
            }
            assert_eq!(assign(balancer), 0);
            enqueue(2, 20, "");
            enqueue(3, 30, own);
            let mut begun = [(); 2].map(|()| assign_and_begin(balancer, backend));
            begun.sort_unstable();
            assert_eq!((begun, assign(balancer)), ([20, 30], 0), "{affinity:?}");
        });
    }
}

#[test]
fn a_page_gets_the_reservation_of_a_network_that_has_many() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        max_sessions: 4,
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits, |balancer, registry, backend| {
        registry.resume(backend);
        balancer.update_backends();
        backend.scoreboard.set_r_state(RState::Idle, now());
        let begun = |network: u64, id: u64| {
            let mut request = request(id, "");
            request.exchange.set_peer(Peer::new(id, network));
            balancer.enqueue(request).unwrap();
            let before = balancer.counters().rejected_sessions.get();
            let mut assignments = Vec::new();
            balancer.assign(&mut assignments);
            backend.scoreboard.count_taken();
            let is_rejected = balancer.counters().rejected_sessions.get() > before;
            assert_eq!(assignments.is_empty(), is_rejected);
            std::mem::forget(assignments);
            !is_rejected
        };
        assert_eq!([1, 2, 3, 4, 5].map(|id| begun(1, id)), [true, true, true, true, false]);
        assert_eq!([6, 7, 8].map(|id| begun(2, id)), [true, true, false]);
        assert_eq!([9, 10].map(|id| begun(3, id)), [true, false]);
        assert_eq!(backend.load.pending_sessions.get(), 4);
    });
}

/// Returns a request of a network for a page, or for a WebSocket.
fn request_of(network: u64, id: u64, is_websocket: bool) -> QueuedRequest {
    let mut request = request(id, "");
    request.exchange.set_peer(Peer::new(id, network));
    request.exchange.end_head(None, None, is_websocket);
    request
}

#[test]
fn while_one_network_has_all_sessions_others_get_pages_and_websockets_nevertheless() {
    for (affinity, is_websocket) in [
        (SessionAffinity::Cookie, false),
        (SessionAffinity::Cookie, true),
        (SessionAffinity::None, true),
    ] {
        let limits =
            PoolLimits { session_affinity: affinity, max_sessions: 4, ..PoolLimits::default() };
        with_a_suspended_worker(limits, |balancer, registry, backend| {
            registry.resume(backend);
            balancer.update_backends();
            backend.scoreboard.set_r_state(RState::Idle, now());
            let worker = Rc::clone(&balancer.backends.borrow()[0]);
            let begun = |network: u64, id: u64| {
                balancer.enqueue(request_of(network, id, is_websocket)).unwrap();
                let before = balancer.counters().rejected_sessions.get();
                let assigned = assign(balancer);
                backend.scoreboard.count_taken();
                assert_eq!(balancer.counters().rejected_sessions.get() == before, assigned == 1);
                if assigned == 1 {
                    worker.begin_session(id, Peer::new(id, network));
                }
                assigned == 1
            };
            assert_eq!([1, 2, 3, 4, 5].map(|id| begun(1, id)), [true, true, true, true, false]);
            assert_eq!([6, 7, 8].map(|id| begun(2, id)), [true, true, false], "{affinity:?}");
            assert_eq!([9, 10].map(|id| begun(3, id)), [true, false], "{affinity:?}");
            (6..=7).for_each(|id| worker.end_session(Peer::new(id, 2)));
            assert_eq!([11, 12].map(|id| begun([1, 2][id as usize - 11], id)), [false, true]);
            assert_eq!((backend.load().1, backend.load.pending_sessions.get()), (6, 0));
        });
    }
}

#[test]
fn a_page_that_has_lost_its_session_does_not_hide_those_of_smaller_networks() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        max_sessions: 4,
        ..PoolLimits::default()
    };
    with_a_suspended_worker(limits, |balancer, registry, backend| {
        registry.resume(backend);
        balancer.update_backends();
        backend.scoreboard.set_r_state(RState::Busy, now());
        let worker = Rc::clone(&balancer.backends.borrow()[0]);
        (1..=3).for_each(|id| balancer.enqueue(request_of(1, id, false)).unwrap());
        assert_eq!(assign(balancer), 0);
        // Clients of the same network open WebSockets that name the worker.
        (11..=14).for_each(|id| worker.begin_session(id, Peer::new(id, 1)));
        balancer.enqueue(request_of(2, 4, false)).unwrap();
        assert_eq!(assign(balancer), 0);
        backend.scoreboard.set_r_state(RState::Idle, now());
        assert_eq!(assign_and_begin(balancer, backend), 4);
        assert_eq!(balancer.counters().rejected_sessions.get(), 3);
    });
}
