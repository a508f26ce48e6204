use rookery_worker_protocol::SharedScoreboard;
use tokio::task::LocalSet;

use super::*;
use crate::backend_registry::Backend;
use crate::worker_id::WorkerId;

struct NoWaker;

impl IoWaker for NoWaker {
    fn wake(&self) {}

    fn wake_within(&self, _within: Duration) {}
}

/// Runs with a pool of one worker, which is not given anything. Nothing that is begun goes on meanwhile.
fn with_a_silent_worker(
    limits: PoolLimits,
    test: impl FnOnce(&Rc<State>, &BackendRegistry, &Arc<Backend>),
) {
    let (scoreboard, _memory) = SharedScoreboard::create().unwrap();
    let backend =
        Backend::new((0, 1), 4711, WorkerId::new().unwrap(), "/none/there".into(), scoreboard);
    let registry = Arc::new(BackendRegistry::default());
    registry.join(&backend);
    registry.suspend(&backend);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let state =
            State::new(Arc::clone(&registry), limits, Arc::new(Keys::new("")), Arc::new(NoWaker));
        state.update_backends();
        test(&state, &registry, &backend);
    });
}

fn request(id: u64, cookie: &str) -> QueuedRequest {
    let mut exchange = Exchange::new();
    exchange.begin(id, 1, 0);
    exchange.set_request_line(b"GET", b"/", rookery_exchange::Version::Http11);
    exchange.push_header(b"cookie", cookie.as_bytes());
    exchange.end_head(None, None, false);
    QueuedRequest::new(exchange, false)
}

#[test]
fn what_waits_for_any_worker_is_looked_at_once_while_none_is_ready() {
    const COUNT: u64 = 1000;
    let limits = PoolLimits { sticky: SessionAffinity::Cookie, ..PoolLimits::default() };
    with_a_silent_worker(limits, |state, registry, backend| {
        for id in 1..=COUNT {
            state.enqueue(request(id, "rookery=forged")).unwrap();
        }
        // As after each reply, and each millisecond.
        for _ in 0..100 {
            state.assign();
        }
        assert_eq!(state.looks.get(), COUNT);
        assert_eq!(state.counts().queue.read().length, COUNT);
        // Somebody came who is not there for them.
        state.update_backends();
        assert_eq!(state.looks.get(), 2 * COUNT);
        registry.resume(backend);
        state.update_backends();
        // Those that its R cannot begin with wait on, and are not looked at again for each that it answers.
        assert_eq!(state.looks.get(), 3 * COUNT);
        assert_eq!(state.given.get() + state.counts().queue.read().length, COUNT);
        for _ in 0..100 {
            state.assign();
        }
        assert_eq!(state.looks.get(), 3 * COUNT);
        assert_eq!(state.counts().cookies_invalid.get(), COUNT);
    });
}

#[test]
fn who_has_waited_too_long_or_left_is_let_go_of_without_a_look() {
    let limits = PoolLimits {
        sticky: SessionAffinity::Cookie,
        queue_time: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    with_a_silent_worker(limits, |state, _, _| {
        let [mut late, leaving, staying] = [1, 2, 3].map(|id| request(id, ""));
        // It came back from a worker, and is the first; others are older.
        late.since = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        let fate = leaving.exchange.shared_status();
        let returned = request(4, "");
        for waiting in [staying, leaving] {
            state.enqueue(waiting).unwrap();
        }
        state.put_back(returned, Duration::ZERO);
        let looks = state.looks.get();
        state.queue.borrow_mut().park(late);
        fate.set_disconnected();
        state.has_left();
        state.assign();
        assert_eq!((state.looks.get(), state.counts().refused_late.get()), (looks, 1));
        let mut commands = VecDeque::new();
        state.take_commands(&mut commands);
        let mut answered: Vec<_> = commands
            .iter()
            .map(|command| match command {
                Command::Respond(exchange) => (exchange.id(), exchange.response().status()),
                other => panic!("{other:?}"),
            })
            .collect();
        answered.sort_unstable();
        // Who has left is told nothing.
        assert_eq!((answered[0], answered[1].0, answered.len()), ((1, 503), 2, 2));
        assert_eq!(state.counts().queue.read().length, 2);
    });
}

#[test]
fn a_request_that_comes_back_shields_no_older_one_from_its_timeout() {
    let limits = PoolLimits {
        sticky: SessionAffinity::None,
        queue_time: Duration::from_secs(60),
        ..PoolLimits::default()
    };
    with_a_silent_worker(limits, |state, _, _| {
        let mut old = request(1, "");
        old.since = Instant::now().checked_sub(Duration::from_secs(59)).unwrap();
        state.enqueue(old).unwrap();
        state.put_back(request(2, ""), Duration::ZERO);
        // One that has waited before keeps its place.
        state.put_back(request(3, ""), Duration::from_secs(30));
        let order: Vec<_> = std::iter::from_fn(|| state.queue.borrow_mut().pop()).collect();
        assert_eq!(
            order.iter().map(|waiting| waiting.exchange.id()).collect::<Vec<_>>(),
            [1, 3, 2]
        );
    });
}
