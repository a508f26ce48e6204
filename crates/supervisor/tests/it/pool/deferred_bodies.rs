//! Tests of apps that may refuse a request before its body has been received.

use rookery_server::Config;
use rookery_supervisor::PoolLimits;
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;
use std::io::Write as _;
use std::sync::atomic::Ordering;

use crate::support::frontend::Frontend;

/// The size in bytes of a body that is large enough for the app to see the head first.
const LARGE: usize = 2 << 20;

fn front(workers: u32) -> Frontend {
    let mut front = Frontend::new(0);
    (0..workers).for_each(|slot| front.join_seeing_heads(slot));
    front
}

/// Returns the number of heads that a worker's application has seen before bodies, and the number
/// of requests that it has begun.
fn seen(front: &Frontend, at: usize) -> (usize, usize) {
    let gate = &front.workers[at].gate;
    (gate.heads.load(Ordering::Relaxed), gate.begun.load(Ordering::Relaxed))
}

fn announce(client: &mut Client, path: &str, lines: &str) {
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
}

#[test]
fn the_body_of_a_refused_request_is_not_read() {
    let front = front(1);
    for (at, lines) in [
        "Content-Length: 5000000000\r\n",
        "Content-Length: 5000000000\r\nExpect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = front.connect();
        announce(&mut client, "/echo", lines);
        // The response arrives although no part of the body has been sent.
        let reply = client.response_to("POST").unwrap();
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (413, "larger than the app takes"),
            "{lines}"
        );
        assert_eq!(seen(&front, 0), (at + 1, 0));
    }
    // A client that sends its body without waiting gets the response as well.
    let mut client = front.connect();
    announce(&mut client, "/echo", "Content-Length: 5000000000\r\n");
    let _ = client.socket.write_all(&vec![0; 64 << 10]);
    assert_eq!(client.response_to("POST").unwrap().status, 413);
}

#[test]
fn r_sees_the_head_once_and_is_free_during_the_upload() {
    let front = front(1);
    let body: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
    let mut client = front.connect();
    announce(&mut client, "/echo", &format!("Content-Length: {LARGE}\r\nExpect: 100-continue\r\n"));
    assert_eq!(client.head().status, 100);
    assert_eq!(seen(&front, 0), (1, 0));
    client.send(&body[..1000]);
    wait_until("it has nothing to do", || front.workers[0].backend.load() == (0, 0));
    // Other requests are served meanwhile.
    let mut other = front.connect();
    for _ in 0..20 {
        assert_eq!(other.get("/slot").text(), "0");
    }
    client.send(&body[1000..]);
    let reply = client.response_to("POST").unwrap();
    assert!(reply.status == 200 && reply.body == body, "{}", reply.head);
    assert_eq!(seen(&front, 0), (1, 21));
}

#[test]
fn small_bodies_are_deferred_only_with_expect_continue() {
    let front = front(1);
    let mut client = front.connect();
    announce(&mut client, "/echo", "Content-Length: 5\r\n");
    // The request waits for its body.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(seen(&front, 0), (0, 0));
    client.send(b"12345");
    assert_eq!(client.response_to("POST").unwrap().text(), "12345");
    assert_eq!(seen(&front, 0), (1, 1));
    // A client that sends `Expect: 100-continue` waits until the app has seen the head.
    announce(&mut client, "/echo", "Content-Length: 5\r\nExpect: 100-continue\r\n");
    assert_eq!(client.head().status, 100);
    assert_eq!(seen(&front, 0), (2, 1));
    client.send(b"12345");
    assert_eq!(client.response_to("POST").unwrap().text(), "12345");
    assert_eq!(seen(&front, 0), (2, 2));
}

#[test]
fn a_request_survives_the_end_of_its_worker_during_the_upload() {
    let mut front = front(2);
    let mut client = front.connect();
    announce(&mut client, "/echo", &format!("Content-Length: {LARGE}\r\nExpect: 100-continue\r\n"));
    assert_eq!(client.head().status, 100);
    let at = usize::from(seen(&front, 0).0 == 0);
    front.kill(at);
    let body = vec![7; LARGE];
    client.send(&body);
    let reply = client.response_to("POST").unwrap();
    assert!(reply.status == 200 && reply.body == body, "{}", reply.head);
    // The other worker gets the head together with the body.
    assert_eq!(seen(&front, 0), (0, 1));
}

#[test]
fn a_worker_that_ends_on_the_head_is_a_502() {
    let mut front = front(1);
    let mut client = front.connect();
    announce(&mut client, "/hold-head", "Content-Length: 5000000\r\n");
    wait_until("it has begun", || seen(&front, 0).0 == 1);
    front.join_seeing_heads(1);
    front.kill(0);
    assert_eq!(client.response_to("POST").unwrap().status, 502);
    assert_eq!(seen(&front, 0), (0, 0));
}

#[test]
fn an_app_that_does_not_check_heads_gets_complete_requests() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    let body = vec![7; LARGE];
    assert!(client.request("POST", "/echo", &body).body == body);
    assert_eq!(seen(&front, 0), (0, 1));
}

#[test]
fn a_client_that_aborts_its_upload_costs_no_worker() {
    let front = front(1);
    for sent in [0, 1000] {
        let mut client = front.connect();
        let lines = format!("Content-Length: {LARGE}\r\nExpect: 100-continue\r\n");
        announce(&mut client, "/echo", &lines);
        assert_eq!(client.head().status, 100);
        client.send(vec![1; sent]);
        drop(client);
    }
    // A client that disconnects while the app looks at the head gets nothing.
    let before = seen(&front, 0).0;
    let mut client = front.connect();
    announce(&mut client, "/hold-head", &format!("Content-Length: {LARGE}\r\n"));
    wait_until("it has begun", || seen(&front, 0).0 == before + 1);
    drop(client);
    front.workers[0].gate.open();
    wait_until("it has nothing to do", || front.workers[0].backend.load() == (0, 0));
    assert_eq!(front.connect().get("/slot").text(), "0");
    assert_eq!(seen(&front, 0), (before + 1, 1));
}

#[test]
fn the_servers_own_limit_applies_before_the_app_sees_the_head() {
    let mut config = Config::default();
    config.limits.max_body_size = 3 << 20;
    let mut front = Frontend::with(0, PoolLimits::default(), config);
    front.join_seeing_heads(0);
    let mut client = front.connect();
    announce(&mut client, "/echo", "Content-Length: 3145729\r\n");
    let reply = client.response_to("POST").unwrap();
    assert!(reply.status == 413 && !reply.text().contains("the app"), "{}", reply.head);
    assert_eq!(seen(&front, 0), (0, 0));
}
