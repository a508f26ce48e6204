//! Tests of requests whose worker ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_server::Config;
use rookery_supervisor::PoolLimits;
use rookery_test_support::wait_until;

use crate::support::frontend::Frontend;

#[test]
fn a_request_that_r_had_begun_is_a_502() {
    let mut front = Frontend::new(1);
    let held = front.ask("/hold");
    wait_until("it is begun", || front.workers[0].gate.begun.load(Ordering::Relaxed) == 1);
    front.kill(0);
    let reply = held.join().unwrap();
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.header("retry-after").is_none());
    front.join(0);
    assert_eq!(front.connect().get("/slot").status, 200);
}

#[test]
fn a_request_that_was_not_begun_is_retried() {
    // The worker gets two requests ahead, whatever its latency estimate is.
    let limits = PoolLimits { min_ahead: 2, ..PoolLimits::default() };
    let mut front = Frontend::with(1, limits, Config::default());
    let held = front.ask("/hold");
    wait_until("it is begun", || front.workers[0].gate.begun.load(Ordering::Relaxed) == 1);
    let mut posting = front.connect();
    let posted = std::thread::spawn(move || posting.request("POST", "/echo", b"once"));
    wait_until("the worker has both", || front.workers[0].backend.load().0 == 2);
    front.join(1);
    front.kill(0);
    assert_eq!(held.join().unwrap().status, 502);
    let reply = posted.join().unwrap();
    assert_eq!(
        (reply.status, reply.header("x-slot"), reply.text()),
        (200, Some("1"), "once".to_owned())
    );
}

#[test]
fn a_begun_response_is_truncated() {
    let mut front = Frontend::new(1);
    let mut client = front.connect();
    client.send("GET /pieces/3 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_through(b"piece 1\n");
    front.kill(0);
    while client.fill() {}
    assert!(!client.read.ends_with(b"0\r\n\r\n"), "it does not look whole");
}

#[test]
fn a_response_with_a_too_large_head_is_a_502() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    assert_eq!(client.get("/heads/100000").header("x-long").unwrap().len(), 100_000);
    let reply = client.get("/heads/2000000");
    assert_eq!(
        (reply.status, reply.text().contains("sent an invalid response")),
        (502, true),
        "{}",
        reply.text()
    );
    assert_eq!(client.get("/slot").status, 200);
}

#[test]
fn a_request_that_returns_too_often_is_a_503() {
    // No worker serves any more, and the registry still has the workers.
    let mut front = Frontend::new(2);
    for worker in &front.workers {
        worker.gate.declines.store(true, Ordering::Relaxed);
    }
    // The workers may be waiting since before.
    std::thread::sleep(Duration::from_millis(50));
    let reply = front.connect().get("/slot");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    front.kill(0);
    front.kill(0);
    front.join(0);
    assert_eq!(front.connect().get("/slot").status, 200);
}

#[test]
fn a_timed_out_request_gets_504_even_if_r_recovers() {
    let front = Frontend::with(1, PoolLimits::default(), Config::default());
    let held = front.ask("/hold");
    wait_until("it is begun", || front.workers[0].gate.begun.load(Ordering::Relaxed) == 1);
    let backend = Arc::clone(&front.workers[0].backend);
    // R recovers, and responds, before the I/O thread has noticed the timeout.
    front.registry.time_out(&backend);
    front.registry.resume(&backend);
    front.workers[0].gate.open();
    assert_eq!(held.join().unwrap().status, 504);
    // A request that R begins later gets its own response.
    assert_eq!(front.ask("/slot").join().unwrap().status, 200);
}
