//! The maximum number of connections, and the eviction of the slowest.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_server::{Config, Limits, ListenerConfig, Rejection, TrustedProxies};

use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, wait_until};

/// Starts an application that responds at once, except to `/held`.
fn held(limits: Limits) -> (App, Arc<AtomicBool>) {
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let app = App::new(limits, move |exchange| {
        while exchange.path() == b"/held" && held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hello(exchange);
    });
    (app, holds)
}

#[test]
fn a_newcomer_is_told_503_when_all_are_being_served() {
    let (app, holds) = held(Limits { max_connections: 3, ..Limits::default() });
    let mut seated: Vec<Client> = (0..3).map(|_| app.connect()).collect();
    seated[0].send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /held");
    for client in &mut seated[1..] {
        client.send("GET /queued HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &seated[1..] {
        client.wait_until_server_has_read();
    }
    let mut late = app.connect();
    let reply = late.response().unwrap();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(late.wait_for_close());
    holds.store(false, Ordering::Relaxed);
    for client in &mut seated {
        assert_eq!(client.response().unwrap().status, 200);
    }
}

#[test]
fn a_newcomer_gets_the_seat_of_the_slowest() {
    // A tick lasts 50 ms, so that the connections below are slow for more than one tick.
    let limits = Limits {
        max_connections: 4,
        ws_close_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let (app, holds) = held(limits);
    let mut silent = app.connect();
    wait_until("it is there", || app.listener().connections() == 1);
    app.advance(Duration::from_millis(500));
    let mut half = app.connect();
    half.send("GET / HT");
    half.wait_until_server_has_read();
    app.advance(Duration::from_millis(500));
    let mut idle = app.connect();
    assert_eq!(idle.get("/").status, 200);
    let mut served = app.connect();
    served.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /held");
    app.advance(Duration::from_millis(500));
    // The connections are evicted in this order: the one that never sent anything, the one with
    // half a head, and the one between two requests.
    let mut newcomers = Vec::new();
    for gone in 0..3 {
        newcomers.push(app.connect());
        match gone {
            0 => assert!(silent.wait_for_close()),
            1 => assert_eq!(half.response().unwrap().status, 408),
            _ => assert!(idle.wait_for_close()),
        }
        // The slot of the evicted connection is free.
        let until = Instant::now() + TEST_TIMEOUT;
        while app.listener().connections() > 4 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        newcomers.last_mut().unwrap().send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    holds.store(false, Ordering::Relaxed);
    for client in newcomers.iter_mut().chain([&mut served]) {
        assert_eq!(client.response().unwrap().status, 200);
    }
    assert_eq!(app.server.reports().count(Rejection::HeadTimeout), 1);
}

#[test]
fn a_newcomer_gets_the_seat_of_a_new_connection_at_once_if_configured() {
    let limits = Limits { max_connections: 2, evicts_at_once: true, ..Limits::default() };
    let (app, holds) = held(limits);
    let mut served = app.connect();
    served.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /held");
    // The clock does not advance, so none of these connections is slow.
    let mut silent = app.connect();
    for _ in 0..3 {
        let late = app.connect();
        assert!(silent.wait_for_close());
        silent = late;
    }
    holds.store(false, Ordering::Relaxed);
    assert_eq!(served.response().unwrap().status, 200);
}

#[test]
fn a_newcomer_waits_for_a_seat_instead_of_a_503_if_configured() {
    let limits = Limits { max_connections: 2, evicts_at_once: true, ..Limits::default() };
    let (app, holds) = held(limits);
    let mut seated: Vec<Client> = (0..2).map(|_| app.connect()).collect();
    for client in &mut seated {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    app.await_event("request /held");
    for client in &seated {
        client.wait_until_server_has_read();
    }
    // Both connections are being served, so none can be evicted.
    let mut late = app.connect();
    late.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    std::thread::sleep(Duration::from_millis(100));
    holds.store(false, Ordering::Relaxed);
    assert_eq!(late.response().unwrap().status, 200);
}

#[test]
fn connections_of_one_address() {
    let app = App::new(Limits { max_connections_per_ip: 2, ..Limits::default() }, hello);
    let mut seated: Vec<Client> = (0..2).map(|_| app.connect()).collect();
    for client in &mut seated {
        assert_eq!(client.get("/").status, 200);
    }
    let mut third = app.connect();
    let reply = third.response().unwrap();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert!(String::from_utf8_lossy(&reply.body).contains("from this address"));
    assert!(third.wait_for_close());
    // A WebSocket occupies the slot of its handshake connection.
    assert_eq!(seated[0].upgrade("/ws").status, 101);
    assert_eq!(app.connect().response().unwrap().status, 503);
    drop(seated);
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let mut client = app.connect();
        // The connection is rejected while those before it are not counted as slow yet.
        let _ = client.socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        if client.response().is_some_and(|reply| reply.status == 200) {
            break;
        }
        assert!(Instant::now() < until, "no seat came free");
    }
}

#[test]
fn connections_of_trusted_proxies_are_not_counted_by_address() {
    let of = |list: &str| TrustedProxies::parse([list]).unwrap();
    for (proxies, proxy_protocol, is_refused) in [
        (of("127.0.0.1"), None, false),
        (of("192.0.2.1"), None, true),
        (TrustedProxies::default(), Some(of("127.0.0.1")), false),
        // Any client may send a PROXY header.
        (TrustedProxies::default(), Some(TrustedProxies::default()), true),
    ] {
        let limits = Limits { max_connections_per_ip: 1, ..Limits::default() };
        let site = ListenerConfig { proxies, proxy_protocol, ..ListenerConfig::default() };
        let app = App::with(Config { limits, ..Config::default() }, site, echo(hello));
        let first = app.connect();
        wait_until("it is accepted", || app.listener().connections() == 1);
        let mut second = app.connect();
        if is_refused {
            assert_eq!(second.response().unwrap().status, 503);
        } else {
            wait_until("it is accepted, too", || app.listener().connections() == 2);
        }
        drop(first);
    }
}

#[test]
fn who_has_just_been_answered_keeps_the_seat() {
    // A tick lasts a second.
    let app = App::new(Limits { max_connections: 1, ..Limits::default() }, hello);
    let mut seated = app.connect();
    for _ in 0..5 {
        let answered = Instant::now();
        assert_eq!(seated.get("/").status, 200);
        let status = app.connect().response().map(|reply| reply.status);
        if answered.elapsed() > Duration::from_millis(500) {
            // On a busy machine the connection may have been slow for long, so that it was evicted.
            seated = app.connect();
            wait_until("there is room", || app.listener().connections() <= 1);
            continue;
        }
        assert_eq!(status, Some(503));
        assert_eq!(seated.get("/").status, 200);
    }
}
