//! Tests of clients that send a FIN after their request. Such a client counts as disconnected while
//! the request waits for a worker, and gets its response once a worker has the request.

use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_exchange::TerminationState;
use rookery_server::Config;
use rookery_supervisor::{PoolLimits, SessionAffinity};
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;

use crate::support::frontend::{Frontend, Log};

const SLOT: &str = "GET /slot HTTP/1.1\r\nHost: a\r\n\r\n";

/// Returns limits with a queue timeout that no test reaches.
fn patient() -> PoolLimits {
    PoolLimits { queue_timeout: Duration::from_secs(600), ..PoolLimits::default() }
}

fn begun(front: &Frontend, at: usize) -> usize {
    front.workers[at].gate.begun.load(Ordering::Relaxed)
}

/// Checks that the server has closed the connection without a response, and that the log shows a
/// client disconnect.
fn is_gone(client: &mut Client, log: &Log) {
    assert!(
        !client.fill() && client.read.is_empty(),
        "{:?}",
        String::from_utf8_lossy(&client.read)
    );
    let line = log.line();
    assert_eq!((line.status, line.ended), (499, Some(TerminationState::ClientDisconnected)));
    assert!(line.upstream.unwrap().queued_since.is_none());
}

#[test]
fn a_half_closed_client_in_the_queue_counts_as_disconnected() {
    let front = Frontend::with(1, patient(), Config::default());
    let log = front.log();
    let held = front.ask("/hold");
    wait_until("it is begun", || begun(&front, 0) == 1);
    // The FIN arrives after the request, with the request, or after a second request, which is not
    // read before the first has its response.
    for (request, waits) in
        [(SLOT.to_owned(), true), (SLOT.to_owned(), false), (SLOT.repeat(2), true)]
    {
        let mut client = front.connect();
        client.send(request);
        if waits {
            front.await_queue(1);
        }
        client.socket.shutdown(Shutdown::Write).unwrap();
        is_gone(&mut client, &log);
        front.await_queue(0);
    }
    front.workers[0].gate.open();
    assert_eq!((held.join().unwrap().status, log.line().status), (200, 200));
    assert_eq!(begun(&front, 0), 1, "none of the others came to R");
}

#[test]
fn a_half_closed_client_gets_the_response_of_its_worker() {
    let front = Frontend::with(1, patient(), Config::default());
    let mut client = front.connect();
    client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    client.socket.shutdown(Shutdown::Write).unwrap();
    wait_until("it is begun", || begun(&front, 0) == 1);
    // The server checks several times meanwhile whether the client has disconnected.
    front.advance(Duration::from_secs(5));
    front.workers[0].gate.open();
    assert_eq!(client.response_to("GET").unwrap().text(), "0");
}

#[test]
fn a_half_closed_client_that_is_queued_again_counts_as_disconnected() {
    // The worker gets one request ahead of the one that R works on.
    let mut front = Frontend::with(1, PoolLimits { min_ahead: 1, ..patient() }, Config::default());
    let log = front.log();
    let held = front.ask("/hold");
    wait_until("it is begun", || begun(&front, 0) == 1);
    let mut client = front.connect();
    client.send(SLOT);
    wait_until("it has come to the worker", || front.workers[0].backend.load().0 == 2);
    client.socket.shutdown(Shutdown::Write).unwrap();
    front.kill(0);
    assert_eq!(held.join().unwrap().status, 502);
    assert!(!client.fill() && client.read.is_empty());
    let mut seen = [log.line(), log.line()].map(|line| (line.status, line.ended));
    seen.sort_unstable_by_key(|(status, _)| *status);
    assert_eq!(
        seen,
        [
            (499, Some(TerminationState::ClientDisconnected)),
            (502, Some(TerminationState::WorkerDied))
        ]
    );
    front.await_queue(0);
}

#[test]
fn a_half_closed_client_that_waits_for_its_worker_counts_as_disconnected() {
    let limits = PoolLimits {
        session_affinity: SessionAffinity::Cookie,
        max_in_flight: 1,
        max_queued_requests: 2,
        ..patient()
    };
    let front = Frontend::with(2, limits, Config::default());
    let log = front.log();
    let mut client = front.connect();
    let page = client.get("/slot");
    let at: usize = page.text().parse().unwrap();
    let cookie = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let ask = |path: &str| {
        let mut client = front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n"));
        client
    };
    let mut held = ask("/hold");
    wait_until("it is begun", || begun(&front, at) == 2);
    assert_eq!(log.line().status, 200);
    // Each iteration fills the queue, so the next one succeeds only if disconnected clients have
    // left it.
    for _ in 0..3 {
        let mut waiting = [ask("/slot"), ask("/slot")];
        for client in &mut waiting {
            client.socket.shutdown(Shutdown::Write).unwrap();
            is_gone(client, &log);
        }
    }
    front.workers[at].gate.open();
    assert_eq!(held.response_to("GET").unwrap().status, 200);
    assert_eq!(ask("/begun").response_to("GET").unwrap().text(), "3");
}

#[test]
fn a_half_closed_handshake_in_the_queue_counts_as_disconnected() {
    let front = Frontend::with(0, patient(), Config::default());
    let log = front.log();
    let mut client = front.connect();
    client.send(
        "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    );
    front.await_queue(1);
    client.socket.shutdown(Shutdown::Write).unwrap();
    is_gone(&mut client, &log);
    front.await_queue(0);
}
