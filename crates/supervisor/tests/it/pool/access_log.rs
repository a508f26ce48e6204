//! Tests of what the access log says of workers: the worker of a request, the times in the queue
//! and in the worker, and why a request ended without a normal response.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_exchange::{TerminationState, UpstreamLog, UpstreamWorker};
use rookery_server::access_log::OwnedRecord;
use rookery_server::{Config, Limits};
use rookery_supervisor::{PoolLimits, SessionAffinity};
use rookery_test_support::client::{Client, Response};
use rookery_test_support::wait_until;

use crate::support::admin::Admin;
use crate::support::fake_worker::pid_of;
use crate::support::frontend::Frontend;

fn upstream(line: &OwnedRecord) -> UpstreamLog {
    line.upstream.expect("one that came to the pool")
}

fn worker(slot: u32, epoch: u64) -> UpstreamWorker {
    UpstreamWorker { slot, pid: pid_of(slot, epoch), epoch }
}

fn begun(front: &Frontend, at: usize) {
    wait_until("it is begun", || front.workers[at].gate.begun.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_line_names_the_worker_and_agrees_with_the_metrics() {
    let front = Frontend::new(1);
    let (log, admin) = (front.log(), Admin::of_registry(&front.registry));
    let mut client = front.connect();
    let mut lines = Vec::new();
    for path in ["/slot", "/sleep/30", "/bytes/100000", "/status/500"] {
        client.get(path);
        lines.push(log.line());
    }
    assert_eq!(client.upgrade("/ws").status, 101);
    lines.push(log.line());
    for line in &lines {
        let upstream = upstream(line);
        assert_eq!((upstream.worker, upstream.retries()), (Some(worker(0, 1)), 0), "{line:?}");
        assert_eq!((line.ended, upstream.session), (None, None), "{line:?}");
        assert!(upstream.queued + upstream.response_time.unwrap() <= line.elapsed, "{line:?}");
    }
    assert!(upstream(&lines[1]).response_time.unwrap() >= Duration::from_millis(30));
    agree(&admin, &lines, 5.0);
}

/// Checks that the metrics count this number of requests, and the sum of the times of these lines.
fn agree(admin: &Admin, lines: &[OwnedRecord], count: f64) {
    for (name, sum) in [
        ("queue", lines.iter().map(|line| upstream(line).queued).sum::<Duration>()),
        ("upstream", lines.iter().filter_map(|line| upstream(line).response_time).sum()),
    ] {
        let metric = |kind: &str| admin.metric(&format!("rookery_{name}_seconds_{kind}"));
        assert_eq!(metric("count"), Some(count), "{name}");
        let total = metric("sum").unwrap();
        assert!((total - sum.as_secs_f64()).abs() < 1e-6, "{name} {total} {sum:?}");
    }
}

#[test]
fn a_retried_request_is_logged_with_its_attempts() {
    // The worker gets a request ahead, whatever its latency estimate is.
    let limits = PoolLimits { min_ahead: 2, ..PoolLimits::default() };
    let mut front = Frontend::with(1, limits, Config::default());
    let log = front.log();
    let held = front.ask("/hold");
    begun(&front, 0);
    let waiting = front.ask("/slot");
    wait_until("the worker has both", || front.workers[0].backend.load().0 == 2);
    front.join(1);
    front.kill(0);
    assert_eq!((held.join().unwrap().status, waiting.join().unwrap().status), (502, 200));
    let lines = [log.line(), log.line()];
    let line = lines.iter().find(|line| line.status == 200).unwrap();
    assert_eq!((upstream(line).worker, upstream(line).retries()), (Some(worker(1, 2)), 1));
    assert_eq!(line.ended, None);
}

#[test]
fn a_request_whose_worker_died_has_state_d() {
    let mut front = Frontend::new(1);
    let log = front.log();
    let held = front.ask("/hold");
    begun(&front, 0);
    front.kill(0);
    assert_eq!(held.join().unwrap().status, 502);
    let line = log.line();
    assert_eq!(
        (line.ended, upstream(&line).worker),
        (Some(TerminationState::WorkerDied), Some(worker(0, 1)))
    );
    assert_eq!((upstream(&line).response_time, upstream(&line).retries()), (None, 0));
    // A worker also ends after the response has begun.
    front.join(5);
    let mut client = front.connect();
    client.send("GET /pieces/3 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_through(b"piece 1\n");
    front.kill(0);
    while client.fill() {}
    let line = log.line();
    assert_eq!(
        (line.status, line.ended, upstream(&line).worker),
        (200, Some(TerminationState::WorkerDied), Some(worker(5, 2)))
    );
    assert!(upstream(&line).response_time.is_some());
}

#[test]
fn a_request_that_timed_out_in_the_queue_has_state_q() {
    let limits = PoolLimits { queue_timeout: Duration::from_millis(300), ..PoolLimits::default() };
    let front = Frontend::with(0, limits, Config::default());
    let log = front.log();
    assert_eq!(front.connect().get("/slot").status, 503);
    let late = log.line();
    assert!(upstream(&late).queued >= Duration::from_millis(300), "{late:?}");
    let limits = PoolLimits {
        max_queued_requests: 1,
        queue_timeout: Duration::from_secs(600),
        ..PoolLimits::default()
    };
    let front = Frontend::with(0, limits, Config::default());
    let log = front.log();
    let mut waits = front.connect();
    waits.send("GET /slot HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it waits", || {
        Admin::of_registry(&front.registry).metric("rookery_queue_length") == Some(1.0)
    });
    assert_eq!(front.connect().get("/slot").status, 503);
    let full = log.line();
    for line in [&late, &full] {
        let upstream = upstream(line);
        assert_eq!(
            (line.status, line.ended, upstream.worker),
            (503, Some(TerminationState::Queue), None),
            "{line:?}"
        );
        assert_eq!((upstream.retries(), upstream.response_time), (0, None));
    }
    let full = Frontend::with(
        1,
        PoolLimits { max_sessions: 1, ..PoolLimits::default() },
        Config::default(),
    );
    let log = full.log();
    let mut client = full.connect();
    assert_eq!((client.upgrade("/ws").status, log.line().ended), (101, None));
    assert_eq!(full.connect().upgrade("/ws").status, 503);
    assert_eq!(log.line().ended, Some(TerminationState::Queue));
}

#[test]
fn a_request_that_timed_out_in_r_has_state_t() {
    let limits = Limits { request_timeout: Duration::from_millis(500), ..Limits::default() };
    let front = Frontend::with(1, PoolLimits::default(), Config { limits, ..Config::default() });
    let log = front.log();
    assert_eq!(front.connect().get("/hold").status, 504);
    let line = log.line();
    assert_eq!((line.status, line.ended), (504, Some(TerminationState::Timeout)));
    assert_eq!((upstream(&line).worker, upstream(&line).response_time), (Some(worker(0, 1)), None));
}

#[test]
fn a_request_whose_client_disconnected_has_state_c() {
    let front = Frontend::new(1);
    let log = front.log();
    for (path, has_worker) in [("/hold", true), ("/slot", false)] {
        let mut client = front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        if has_worker {
            begun(&front, 0);
        } else {
            let admin = Admin::of_registry(&front.registry);
            wait_until("it waits", || admin.metric("rookery_queue_length") == Some(1.0));
        }
        client.reset_on_close();
        drop(client);
        let line = log.line();
        assert_eq!(
            (line.status, line.ended),
            (499, Some(TerminationState::ClientDisconnected)),
            "{path}"
        );
        let upstream = upstream(&line);
        assert_eq!(
            (upstream.worker, upstream.response_time),
            (Some(worker(0, 1)).filter(|_| has_worker), None),
            "{path}"
        );
        assert!(
            upstream.queued <= line.elapsed && (has_worker || !upstream.queued.is_zero()),
            "{line:?}"
        );
    }
    let mut client = front.connect();
    front.workers[0].gate.open();
    client.send("GET /bytes/200000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_through(b"xxx");
    client.reset_on_close();
    drop(client);
    let line = log.line();
    assert_eq!(
        (line.status, line.ended, upstream(&line).worker),
        (200, Some(TerminationState::ClientDisconnected), Some(worker(0, 1)))
    );
}

#[test]
fn accepted_and_refused_uploads_are_logged_once() {
    let mut front = Frontend::new(0);
    front.join_seeing_heads(0);
    let (log, admin) = (front.log(), Admin::of_registry(&front.registry));
    let mut client = front.connect();
    let body = vec![b'x'; 2 << 20];
    assert_eq!(client.request("POST", "/echo", &body).body.len(), body.len());
    let taken = log.line();
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n");
    assert_eq!(client.head().status, 413);
    drop(client);
    let refused = log.line();
    let lines = [taken, refused];
    for line in &lines {
        let upstream = upstream(line);
        assert_eq!(
            (upstream.worker, upstream.retries(), line.ended),
            (Some(worker(0, 1)), 0, None),
            "{line:?}"
        );
    }
    agree(&admin, &lines, 2.0);
}

#[test]
fn requests_of_one_client_have_one_session_hash() {
    let limits = PoolLimits { session_affinity: SessionAffinity::Cookie, ..PoolLimits::default() };
    let front = Frontend::with(2, limits, Config::default());
    let log = front.log();
    let mut sessions = Vec::new();
    for _ in 0..10 {
        let mut client = front.connect();
        let page = ask(&mut client, "");
        let cookie = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        assert_eq!(ask(&mut client, &format!("Cookie: {cookie}\r\n")).status, 200);
        let [first, second] = [log.line(), log.line()];
        let session = upstream(&first).session.expect("it was told a cookie");
        assert_eq!(upstream(&second).session, Some(session));
        assert!(!cookie.contains(&format!("{session:016x}")));
        sessions.push(session);
    }
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), 10);
    let mut client = front.connect();
    ask(&mut client, "Cookie: rookery=forged\r\nSec-Fetch-Mode: cors\r\n");
    // The client gets a new cookie, and the log shows the session of that cookie.
    let session = upstream(&log.line()).session.expect("it was told a cookie");
    assert!(!sessions.contains(&session));
}

fn ask(client: &mut Client, headers: &str) -> Response {
    client.send(format!("GET /slot HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    client.response_to("GET").unwrap()
}
