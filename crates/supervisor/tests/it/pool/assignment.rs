//! Tests of how requests are assigned to workers when workers are busy and clients have sessions.

use std::thread::JoinHandle;
use std::time::Duration;

use rookery_server::Config;
use rookery_supervisor::{PoolLimits, SessionAffinity};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;
use rookery_worker_protocol::now;

use crate::support::frontend::Frontend;

/// A queue timeout that is longer than a request takes on a busy machine, and shorter than the
/// timeouts of these tests.
const QUEUE_TIME: Duration = Duration::from_secs(3);

fn front(workers: u32, queue_timeout: Duration) -> Frontend {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        queue_timeout,
        ..PoolLimits::default()
    };
    Frontend::with(workers, limits, Config::default())
}

fn ask(client: &mut Client, path: &str, headers: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    client.response_to("GET").unwrap()
}

/// Sends a request on a thread of its own.
fn begin(
    front: &Frontend,
    method: &'static str,
    path: &'static str,
    headers: &str,
) -> JoinHandle<Response> {
    let (mut client, headers) = (front.connect(), headers.to_owned());
    std::thread::spawn(move || {
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{length}{headers}\r\n"));
        client.response_to(method).unwrap()
    })
}

/// Returns the request header with the session cookie of a response.
fn cookie(reply: &Response) -> String {
    let set = reply.header("set-cookie").expect("a cookie");
    format!("Cookie: {}\r\n", set.split(';').next().unwrap())
}

fn at(front: &Frontend, slot: &str) -> usize {
    front.workers.iter().position(|worker| worker.backend.slot.to_string() == slot).unwrap()
}

fn is_idle(front: &Frontend, at: usize) -> bool {
    front.workers[at].backend.scoreboard.read().is_idle(now())
}

/// Holds the worker that this cookie names with a request, until the worker's gate is opened.
fn hold(front: &Frontend, at: usize, with: &str) -> JoinHandle<Response> {
    wait_until("it is idle", || is_idle(front, at));
    let begun = front.workers[at].gate.begun.load(std::sync::atomic::Ordering::Relaxed);
    let held = begin(front, "POST", "/hold", with);
    wait_until("it is begun", || {
        front.workers[at].gate.begun.load(std::sync::atomic::Ordering::Relaxed) > begun
    });
    held
}

#[test]
fn a_new_client_goes_to_an_idle_worker_despite_its_sessions() {
    let front = front(2, Duration::from_secs(60));
    // One worker has sessions and is idle, and the other has no sessions and is busy.
    let mut sockets: Vec<Client> = Vec::new();
    let mut client = front.connect();
    let page = client.get("/slot");
    let (with, idle) = (cookie(&page), at(&front, &page.text()));
    for _ in 0..5 {
        let mut socket = front.connect();
        assert_eq!(socket.upgrade_with("/ws", &with, b"").status, 101);
        sockets.push(socket);
    }
    wait_until("they count", || front.workers[idle].backend.load().1 == 5);
    let busy = 1 - idle;
    wait_until("both are idle", || is_idle(&front, 0) && is_idle(&front, 1));
    let first = begin(&front, "POST", "/hold", "");
    wait_until("the one without sessions has it", || front.workers[busy].backend.load().0 == 1);
    for headers in ["Accept: text/html\r\n", "", "Accept: application/json\r\n"] {
        for _ in 0..3 {
            wait_until("it is idle", || is_idle(&front, idle));
            assert_eq!(
                ask(&mut front.connect(), "/slot", headers).text(),
                idle_slot(&front, idle),
                "{headers}"
            );
        }
    }
    front.workers[busy].gate.open();
    assert_eq!(first.join().unwrap().status, 200);
}

fn idle_slot(front: &Frontend, at: usize) -> String {
    front.workers[at].backend.slot.to_string()
}

#[test]
fn queued_clients_go_to_the_first_free_worker() {
    let front = front(2, Duration::from_secs(60));
    let both: Vec<_> = (0..2).map(|_| begin(&front, "POST", "/hold", "")).collect();
    wait_until("both are busy", || front.workers.iter().all(|worker| worker.backend.load().0 == 1));
    let waiting: Vec<_> = (0..4).map(|_| begin(&front, "POST", "/slot", "")).collect();
    front.await_queue(4);
    assert!(waiting.iter().all(|asking| !asking.is_finished()));
    front.workers[1].gate.open();
    for asking in waiting {
        assert_eq!(asking.join().unwrap().text(), "1");
    }
    front.workers[0].gate.open();
    assert!(both.into_iter().all(|asking| asking.join().unwrap().status == 200));
}

#[test]
fn only_pages_leave_an_unresponsive_worker() {
    let front = front(2, QUEUE_TIME);
    let page = front.connect().get("/slot");
    let (with, stuck) = (cookie(&page), at(&front, &page.text()));
    let held = hold(&front, stuck, &with);
    let session = "/session/0123456789abcdef0123456789abcdef/upload/x";
    let pages = [
        begin(&front, "GET", "/slot", &format!("{with}Sec-Fetch-Mode: navigate\r\n")),
        begin(&front, "GET", "/slot", &format!("{with}Accept: text/html\r\n")),
        begin(&front, "GET", "/slot", &with),
    ];
    let others = [
        begin(&front, "POST", session, &with),
        begin(&front, "POST", "/slot", &with),
        begin(&front, "GET", "/slot", &format!("{with}Accept: */*\r\n")),
    ];
    for asking in pages {
        let page = asking.join().unwrap();
        assert_eq!((page.status, page.text()), (200, idle_slot(&front, 1 - stuck)));
        assert!(page.header("set-cookie").is_some());
    }
    for asking in others {
        let refused = asking.join().unwrap();
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    }
    // A page that is requested now does not wait at all.
    let later = ask(&mut front.connect(), "/slot", &format!("{with}Accept: text/html\r\n"));
    assert_eq!(later.text(), idle_slot(&front, 1 - stuck));
    front.workers[stuck].gate.open();
    assert_eq!(held.join().unwrap().status, 200);
}

#[test]
fn the_queue_timeout_includes_the_wait_in_a_worker() {
    for session_affinity in [SessionAffinity::None, SessionAffinity::Cookie] {
        // Each worker gets requests ahead of the one that R works on.
        let limits = PoolLimits {
            session_affinity,
            queue_timeout: QUEUE_TIME,
            min_ahead: 4,
            ..PoolLimits::default()
        };
        let front = Frontend::with(1, limits, Config::default());
        let held = begin(&front, "POST", "/hold", "");
        wait_until("it is begun", || {
            front.workers[0].gate.begun.load(std::sync::atomic::Ordering::Relaxed) == 1
        });
        let waiting: Vec<_> = (0..2).map(|_| begin(&front, "POST", "/slot", "")).collect();
        wait_until("the worker has them", || front.workers[0].backend.load().0 == 3);
        for asking in waiting {
            let refused = asking.join().unwrap();
            assert_eq!(
                (refused.status, refused.header("retry-after")),
                (503, Some("1")),
                "{session_affinity:?}"
            );
        }
        front.workers[0].gate.open();
        assert_eq!(held.join().unwrap().status, 200);
        assert_eq!(front.connect().get("/slot").status, 200);
        // R does not begin requests that were refused.
        let begun = front.workers[0].gate.begun.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(begun, 2, "{session_affinity:?}");
    }
}

#[test]
fn a_page_that_its_worker_does_not_begin_is_served_by_another() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        queue_timeout: QUEUE_TIME,
        min_ahead: 4,
        ..PoolLimits::default()
    };
    let front = Frontend::with(2, limits, Config::default());
    let page = front.connect().get("/slot");
    let (with, stuck) = (cookie(&page), at(&front, &page.text()));
    let held = hold(&front, stuck, &with);
    let asking = begin(&front, "GET", "/slot", &format!("{with}Accept: text/html\r\n"));
    wait_until("the worker has it", || front.workers[stuck].backend.load().0 == 2);
    let page = asking.join().unwrap();
    assert_eq!((page.status, page.text()), (200, idle_slot(&front, 1 - stuck)));
    front.workers[stuck].gate.open();
    assert_eq!(held.join().unwrap().status, 200);
}

#[test]
fn a_request_is_executed_once_if_its_worker_becomes_free_at_its_deadline() {
    let queue_timeout = Duration::from_millis(100);
    let limits = PoolLimits {
        session_affinity: SessionAffinity::None,
        queue_timeout,
        min_ahead: 4,
        ..PoolLimits::default()
    };
    let front = Frontend::with(2, limits, Config::default());
    let begun = || {
        let of =
            |at: usize| front.workers[at].gate.begun.load(std::sync::atomic::Ordering::Relaxed);
        of(0) + of(1)
    };
    for round in 0..40 {
        front.workers.iter().for_each(|worker| worker.gate.close());
        let before = begun();
        let asking: Vec<_> = (0..3).map(|_| begin(&front, "POST", "/hold", "")).collect();
        std::thread::sleep(Duration::from_millis(80 + round));
        front.workers.iter().for_each(|worker| worker.gate.open());
        // On a busy machine, a request may also be late at the other worker, and then gets 503.
        let statuses: Vec<_> =
            asking.into_iter().map(|asking| asking.join().unwrap().status).collect();
        wait_until("both are idle", || (0..2).all(|at| is_idle(&front, at)));
        let answered = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(
            (begun() - before, answered > 0),
            (answered, true),
            "round {round}: {statuses:?}"
        );
    }
}

#[test]
fn requests_of_any_method_are_retried_if_not_begun() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::None,
        queue_timeout: QUEUE_TIME,
        min_ahead: 4,
        ..PoolLimits::default()
    };
    let front = Frontend::with(2, limits, Config::default());
    let begun = |at: usize| front.workers[at].gate.begun.load(std::sync::atomic::Ordering::Relaxed);
    let held: Vec<_> = (0..2).map(|_| begin(&front, "POST", "/hold", "")).collect();
    wait_until("both are begun", || begun(0) == 1 && begun(1) == 1);
    let asking = begin(&front, "POST", "/slot", "");
    let has_it = |at: usize| front.workers[at].backend.load().0 == 2;
    wait_until("a worker has it", || has_it(0) || has_it(1));
    let (slow, free) = if has_it(0) { (0, 1) } else { (1, 0) };
    front.workers[free].gate.open();
    let reply = asking.join().unwrap();
    assert_eq!((reply.status, reply.text()), (200, front.workers[free].backend.slot.to_string()));
    front.workers[slow].gate.open();
    for held in held {
        assert_eq!(held.join().unwrap().status, 200);
    }
    // R of the slow worker does not begin the request that the other worker has responded to.
    assert_eq!((begun(slow), begun(free)), (1, 2));
}
