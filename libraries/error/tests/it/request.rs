//! The error hook of a server.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use rookery_error::{
    Delivery, Error, ErrorHook, ErrorHookFuture, ErrorId, Kind, QUEUED_REPORTS, Report, Reports,
    StaticError, clear, error, throw, with_hook,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rejection {
    HeadTooLarge,
    Timeout,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::HeadTooLarge => "head too large",
            Rejection::Timeout => "timeout",
        })
    }
}

impl std::error::Error for Rejection {}

static HEAD_TOO_LARGE: StaticError<Rejection> = StaticError::new(Rejection::HeadTooLarge);
static TIMEOUT: StaticError<Rejection> = StaticError::new(Rejection::Timeout);

#[derive(Clone, Copy)]
enum Counted {
    HeadTooLarge,
    Timeout,
    Handler,
}

impl Kind for Counted {
    const COUNT: usize = 3;

    fn of(error: &Error) -> Counted {
        match error.downcast_ref() {
            Some(Rejection::HeadTooLarge) => Counted::HeadTooLarge,
            Some(Rejection::Timeout) => Counted::Timeout,
            None => Counted::Handler,
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

fn queueing() -> Arc<Reports<Counted>> {
    let reports = Arc::new(Reports::new());
    reports.set_delivery(Delivery::Queue);
    reports
}

#[test]
fn each_error_reaches_its_requests_hook_once_with_the_requests_id() {
    let reports = queueing();
    let (one, two) = (reports.hook(), reports.hook());
    one.begin(11);
    two.begin(22);
    one.throw(Error::from_static_error(&HEAD_TOO_LARGE));
    two.throw(Error::from_static_error(&TIMEOUT).context("reading the head"));
    one.begin(12);
    assert_eq!((one.request(), two.request()), (12, 22));
    one.throw(error!("handler failed"));

    let mut seen = Vec::new();
    while let Some(report) = reports.take() {
        seen.push((report.request, format!("{:#}", report.error)));
    }
    let expected =
        [(11, "head too large"), (22, "reading the head: timeout"), (12, "handler failed")];
    assert_eq!(seen, expected.map(|(request, text)| (request, text.to_owned())));
    for kind in [Counted::HeadTooLarge, Counted::Timeout, Counted::Handler] {
        assert_eq!(reports.count(kind), 1);
    }
    assert_eq!((reports.total(), reports.lost()), (3, 0));
    assert!(reports.take().is_none());
}

/// The life of a connection: one wrapped future, several requests, and no change of a reference
/// count.
#[test]
fn one_hook_serves_a_connection() {
    let reports = queueing();
    let hook = reports.hook();
    let (task, mut request) = (Arc::clone(&hook), 0);
    let connection = poll_fn(move |_| {
        request += 1;
        task.begin(request);
        assert_eq!(Arc::strong_count(&task), 3, "the test's, the task's and the wrapper's");
        throw(Error::from_static_error(&TIMEOUT));
        if request == 5 { Poll::Ready(()) } else { Poll::Pending }
    });
    let mut connection = pin!(ErrorHookFuture::with_hook(Some(hook.clone()), connection));
    let mut cx = Context::from_waker(Waker::noop());
    while connection.as_mut().poll(&mut cx).is_pending() {}
    let requests: Vec<_> =
        std::iter::from_fn(|| reports.take()).map(|report| report.request).collect();
    assert_eq!(requests, [1, 2, 3, 4, 5]);
    assert_eq!(reports.count(Counted::Timeout), 5);
}

#[test]
fn the_queue_keeps_the_first_and_counts_the_lost() {
    let reports = Arc::new(Reports::<Counted>::new().with_limit(3));
    reports.set_delivery(Delivery::Queue);
    let hook = reports.hook();
    for request in 0..5 {
        hook.begin(request);
        hook.throw(error!("again"));
    }
    assert_eq!((reports.lost(), reports.total()), (2, 5));
    assert_eq!(reports.take().map(|report| report.request), Some(0));
    hook.begin(9);
    hook.throw(error!("room again"));
    let rest: Vec<_> = std::iter::from_fn(|| reports.take()).map(|report| report.request).collect();
    assert_eq!(rest, [1, 2, 9]);
}

#[test]
fn the_default_limit_holds() {
    #[cfg(target_pointer_width = "64")]
    assert_eq!(QUEUED_REPORTS * size_of::<Report>(), 6 * 1024);
    let reports = queueing();
    let hook = reports.hook();
    for _ in 0..=QUEUED_REPORTS {
        hook.throw(error!("again"));
    }
    assert_eq!(reports.lost(), 1);
    assert_eq!(std::iter::from_fn(|| reports.take()).count(), QUEUED_REPORTS);
}

#[test]
fn without_delivery_errors_are_only_counted() {
    let reports = Arc::new(Reports::<Counted>::new());
    let hook = reports.hook();
    assert_ne!(hook.throw(error!("unheard")), ErrorId::default());
    assert!(reports.take().is_none());
    reports.set_delivery(Delivery::Queue);
    hook.throw(error!("heard"));
    reports.set_delivery(Delivery::Count);
    hook.throw(error!("unheard"));
    assert_eq!(reports.take().expect("heard").error.to_string(), "heard");
    assert!(reports.take().is_none());
    assert_eq!((reports.total(), reports.lost()), (3, 0));
}

#[test]
fn a_cleared_error_is_withdrawn() {
    let reports = queueing();
    let hook: Arc<dyn ErrorHook> = reports.hook();
    with_hook(&hook, || {
        let (first, second) = (throw("first"), throw("second"));
        assert_ne!(first, second);
        clear(&first);
        clear(&first);
        assert_eq!(reports.take().map(|report| report.id), Some(second));
        clear(&second);
    });
    assert!(reports.take().is_none());
    assert_eq!(reports.total(), 2);
}

#[test]
fn the_waker_runs_when_the_queue_stops_being_empty() {
    let wakes = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&wakes);
    let reports = Reports::<Counted>::new().with_waker(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let reports = Arc::new(reports);
    let hook = reports.hook();
    hook.throw(error!("nobody listens"));
    assert_eq!(wakes.load(Ordering::Relaxed), 0);
    reports.set_delivery(Delivery::Queue);
    hook.throw(error!("one"));
    hook.throw(error!("two"));
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    while reports.take().is_some() {}
    hook.throw(error!("three"));
    assert_eq!(wakes.load(Ordering::Relaxed), 2);
}

/// The observer and the waker run without the lock, so they may use the queue.
#[test]
fn observer_sees_every_error_and_may_take_reports() {
    let seen = Arc::<Mutex<Vec<(u64, String)>>>::default();
    let log = Arc::clone(&seen);
    let reports = Reports::<Counted>::new().with_observer(move |request, error| {
        log.lock().expect("no panic").push((request, error.to_string()));
    });
    let reports = Arc::new(reports);
    let hook = reports.hook();
    hook.begin(3);
    hook.throw(error!("logged"));
    assert_eq!(*seen.lock().expect("no panic"), [(3, "logged".to_owned())]);

    let slot = Arc::<Mutex<Option<Arc<Reports<Counted>>>>>::default();
    let late = Arc::clone(&slot);
    let reports = Arc::new(Reports::<Counted>::new().with_waker(move || {
        let reports = late.lock().expect("no panic").clone().expect("set below");
        assert!(reports.take().is_some());
    }));
    *slot.lock().expect("no panic") = Some(Arc::clone(&reports));
    reports.set_delivery(Delivery::Queue);
    reports.hook().throw(error!("taken at once"));
    assert!(reports.take().is_none());
    // Breaks the reference cycle.
    *slot.lock().expect("no panic") = None;
}

#[test]
fn many_connections_on_many_threads_count_all_errors() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 2_000 };
    let reports = Arc::new(Reports::<Counted>::new().with_limit(16));
    reports.set_delivery(Delivery::Queue);
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let hook = reports.hook();
                scope.spawn(move || {
                    for request in 0..EACH {
                        hook.begin(thread * EACH + request);
                        hook.throw(error!("r{}", thread * EACH + request));
                    }
                })
            })
            .collect();
        let mut taken = 0;
        let mut take = || {
            while let Some(report) = reports.take() {
                assert_eq!(report.error.to_string(), format!("r{}", report.request));
                taken += 1;
            }
        };
        while threads.iter().any(|thread| !thread.is_finished()) {
            take();
            std::thread::yield_now();
        }
        take();
        taken
    });
    assert_eq!(taken + reports.lost(), 3 * EACH);
    assert_eq!(reports.count(Counted::Handler), 3 * EACH);
}
