//! Tests of forwarding requests and responses through the pool.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_server::{Config, Limits, ListenerConfig, Server};
use rookery_supervisor::PoolLimits;
use rookery_test_support::client::Client;
use rookery_test_support::wait_until;

use crate::support::frontend::{Frontend, get_at_rest};

#[test]
fn forwards_the_response_of_a_worker_unchanged() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    let reply = client.get("/slot");
    assert_eq!((reply.status, reply.text()), (200, "0".to_owned()));
    assert_eq!(
        (reply.header("x-slot"), reply.header("content-type")),
        (Some("0"), Some("text/plain"))
    );
    assert_eq!(client.get("/nothing/here?a=b").status, 404);
    for status in [204, 304, 201, 500] {
        assert_eq!(client.get(&format!("/status/{status}")).status, status);
    }
    let head = client.request("HEAD", "/bytes/7", b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("7")));
    assert_eq!(client.request("DELETE", "/slot", b"").text(), "0");
}

#[test]
fn the_worker_gets_a_query_as_it_was_sent() {
    const TARGET: &str = "/target?q=\"a\"<b>{c}|d";
    let front = Frontend::new(2);
    let get = format!("GET {TARGET} HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut client = front.connect();
    for at in 0..get.len() {
        // The first request is pipelined with a part of the second one.
        client.send(format!("{get}{}", &get[..at]));
        client.wait_until_server_has_read();
        client.send(&get[at..]);
        for _ in 0..2 {
            let reply = client.response().unwrap();
            assert_eq!((reply.status, &*reply.text()), (200, TARGET), "{at}");
        }
    }
}

#[test]
fn the_worker_learns_of_the_clients_connection() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    client.send("GET /client HTTP/1.1\r\nHost: a\r\nX-Request-Id: theirs\r\n\r\n");
    let reply = client.response_to("GET").unwrap();
    let own = client.socket.local_addr().unwrap();
    let expected = format!("Some({own}) Some({}) http ", front.address);
    assert!(reply.text().starts_with(&expected), "{}", reply.text());
    assert!(reply.text().ends_with(" None") && !reply.text().contains("theirs"));
}

/// Returns the header lines that an application has seen, without those that apply to a single
/// connection.
fn end_to_end(shown: &str) -> Vec<String> {
    let own = ["connection:", "content-length:"];
    let mut lines: Vec<_> = shown
        .lines()
        .filter(|line| !own.iter().any(|name| line.starts_with(name)))
        .map(String::from)
        .collect();
    lines.sort();
    lines
}

#[test]
fn a_client_cannot_remove_headers_by_the_connection_header() {
    let alone = Server::with_closure_and_echo(Config::default(), |exchange| {
        let lines: Vec<_> =
            exchange.headers().map(|line| [line.name, b": ", line.value, b"\n"].concat()).collect();
        exchange.begin_response(200);
        exchange.set_response_body(&lines.concat());
    });
    let listener =
        alone.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let front = Frontend::new(1);
    let lines = "Host: a\r\nX-Forwarded-For: 192.0.2.7\r\nAuthorization: Basic YTpi\r\nX-Mine: 1\r\nProxy: http://evil\r\n";
    for connection in [
        "",
        "Connection: x-forwarded-for, authorization\r\n",
        "Connection: close, X-Forwarded-For\r\nConnection: AUTHORIZATION, host, cookie\r\n",
        "Connection: keep-alive, x-mine\r\n",
    ] {
        let ask = |address| {
            let mut client = Client::connect(address);
            client.send(format!("GET /headers HTTP/1.1\r\n{lines}{connection}Cookie: a=b\r\n\r\n"));
            end_to_end(&client.response_to("GET").unwrap().text())
        };
        let expected = [
            "authorization: Basic YTpi",
            "cookie: a=b",
            "host: a",
            "x-forwarded-for: 192.0.2.7",
            "x-mine: 1",
        ];
        assert_eq!(ask(listener.local_addr().unwrap()), expected, "one process: {connection}");
        assert_eq!(ask(front.address), expected, "workers: {connection}");
    }
}

#[test]
fn forwards_bodies_of_all_sizes() {
    let limits = Limits { body_buffer_size: 64 << 10, ..Limits::default() };
    let front = Frontend::with(1, PoolLimits::default(), Config { limits, ..Config::default() });
    let mut client = front.connect();
    // The sizes cover bodies in memory and in a file, and responses with one chunk and several.
    for len in [0, 1, 1000, 32 << 10, (32 << 10) + 1, 64 << 10, 300_000, 5_000_000] {
        let body: Vec<u8> = (0..len).map(|at: u32| (at % 251) as u8).collect();
        let reply = client.request("POST", "/echo", &body);
        assert!(reply.status == 200 && reply.body == body, "{len}: {}", reply.head);
    }
}

#[test]
fn forwards_chunks_immediately() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    client.send("GET /pieces/3 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    client.read_through(b"piece 1\n");
    front.workers[0].gate.open();
    client.read_through(b"piece 2\n");
    client.read_through(b"0\r\n\r\n");
    assert_eq!(client.get("/slot").text(), "0");
}

#[test]
fn a_stopping_server_finishes_requests_in_flight() {
    let front = Frontend::new(1);
    let mut client = front.connect();
    client.send("GET /pieces/3 HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_through(b"piece 1\n");
    front.listener.as_ref().unwrap().drain();
    front.workers[0].gate.open();
    client.read_through(b"piece 2\n");
    client.read_through(b"0\r\n\r\n");
}

#[test]
fn applies_back_pressure_to_the_worker() {
    let front = Frontend::new(1);
    front.workers[0].gate.open();
    let mut slow = front.connect();
    slow.send("GET /bytes/200000000 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(slow.head().status, 200);
    // Other requests are served meanwhile, because R of the worker is idle.
    assert_eq!(front.connect().get("/slot").text(), "0");
    // In the rings, a response in memory crosses at once.
    assert_eq!(front.workers[0].backend.load().0, 0);
    drop(slow);
    wait_until("the worker is rid of it", || front.workers[0].backend.load().0 == 0);
    assert_eq!(front.connect().get("/slot").text(), "0");
}

#[test]
fn requests_are_distributed_among_idle_workers() {
    let front = Frontend::new(3);
    let mut client = front.connect();
    let seen: HashSet<String> = (0..6).map(|_| get_at_rest(&mut client, "/slot").text()).collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let held = front.ask("/hold");
    wait_until("it is begun", || {
        front.workers.iter().any(|it| it.gate.begun.load(Ordering::Relaxed) > 2)
    });
    let busy =
        |front: &Frontend| front.workers.iter().position(|it| it.backend.load().0 == 1).unwrap();
    let at = busy(&front);
    for _ in 0..30 {
        assert_ne!(client.get("/sleep/1").text(), at.to_string());
    }
    front.workers[at].gate.open();
    assert_eq!(held.join().unwrap().text(), at.to_string());
}

#[test]
fn a_queued_request_goes_to_the_first_free_worker() {
    let mut front = Frontend::new(2);
    let held: Vec<_> = (0..2).map(|_| front.ask("/hold")).collect();
    wait_until("both work", || front.workers.iter().all(|it| it.backend.load().0 == 1));
    let waiting: Vec<_> = (0..20).map(|_| front.ask("/slot")).collect();
    front.workers[1].gate.open();
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap().text(), "1");
    }
    front.workers[0].gate.open();
    let mut slots: Vec<_> = held.into_iter().map(|held| held.join().unwrap().text()).collect();
    slots.sort_unstable();
    assert_eq!(slots, ["0", "1"]);
    // A waiting request is also sent to a worker that is added later.
    front.kill(0);
    front.kill(0);
    let late = front.ask("/slot");
    front.await_queue(1);
    front.join(7);
    assert_eq!(late.join().unwrap().text(), "7");
}

#[test]
fn a_full_queue_and_a_queue_timeout_give_503() {
    let limits = PoolLimits {
        max_queued_requests: 2,
        queue_timeout: Duration::from_secs(5),
        ..PoolLimits::default()
    };
    let front = Frontend::with(0, limits, Config::default());
    let waiting: Vec<_> = (0..2).map(|_| front.ask("/slot")).collect();
    front.await_queue(2);
    let full = front.connect().get("/slot");
    assert_eq!((full.status, full.header("retry-after")), (503, Some("1")));
    for waiting in waiting {
        let late = waiting.join().unwrap();
        assert_eq!((late.status, late.header("retry-after")), (503, Some("1")));
        assert!(late.text().contains("no worker is available"), "{}", late.text());
    }
}

#[test]
fn requests_of_disconnected_clients_are_not_executed() {
    let front = Frontend::new(1);
    let held = front.ask("/hold");
    wait_until("it works", || front.workers[0].gate.begun.load(Ordering::Relaxed) == 1);
    for _ in 0..5 {
        let mut client = front.connect();
        client.send("GET /slot HTTP/1.1\r\nHost: a\r\n\r\n");
        client.reset_on_close();
        std::thread::sleep(Duration::from_millis(20));
    }
    let connections = || front.listener.as_ref().unwrap().connections();
    wait_until("the server sees that they have", || connections() == 1);
    front.workers[0].gate.open();
    held.join().unwrap();
    assert_eq!(front.connect().get("/slot").status, 200);
    assert_eq!(front.workers[0].gate.begun.load(Ordering::Relaxed), 2);
}

#[test]
fn a_draining_worker_finishes_and_gets_no_new_requests() {
    let front = Frontend::new(2);
    let held = front.ask("/hold");
    wait_until("it works", || {
        front.workers.iter().any(|it| it.gate.begun.load(Ordering::Relaxed) == 1)
    });
    let at = front.workers.iter().position(|it| it.backend.load().0 == 1).unwrap();
    front.registry.drain(&front.workers[at].backend);
    let mut client = front.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/slot").text(), (1 - at).to_string());
    }
    front.workers[at].gate.open();
    assert_eq!(held.join().unwrap().text(), at.to_string());
    wait_until("it is done", || front.workers[at].backend.load() == (0, 0));
    assert_eq!(client.get("/slot").text(), (1 - at).to_string());
}

#[test]
fn under_load_no_request_is_lost() {
    let front = Arc::new(Frontend::new(3));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let mut client = front.connect();
            std::thread::spawn(move || {
                (0..200).filter(|_| client.get("/slot").status == 200).count()
            })
        })
        .collect();
    assert_eq!(clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>(), 3200);
    let answered: Vec<_> = front.workers.iter().map(|worker| worker.backend.responses()).collect();
    assert_eq!(answered.iter().sum::<u64>(), 3200);
    assert!(answered.iter().all(|answered| *answered > 300), "{answered:?}");
}
