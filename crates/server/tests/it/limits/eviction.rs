//! The maximum number of connections, and the eviction of the slowest.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Share};
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, Limits, ListenerConfig, Rejection, TrustedProxies};

use crate::http2::websocket::{CONNECT, Sockets};
use crate::support::http2::{END_HEADERS, END_STREAM, Heard, Peer, block, code, frame, get, kind};
use crate::support::transport::Transport;
use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// The payload of the close frame of a WebSocket that is evicted for a new connection.
pub(super) const TRY_AGAIN_LATER: &[u8] = b"\x03\xf5too many connections";

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
fn new_connections_without_a_request_keep_nobody_out() {
    let app = App::new(Limits { max_connections: 4, ..Limits::default() }, hello);
    let mut silent: Vec<Client> = Vec::new();
    // The clock does not advance, so none of these connections has waited for long.
    for _ in 0..50 {
        silent.push(app.connect());
        assert_eq!(app.connect().get("/").status, 200);
    }
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

/// Starts a server with TLS and 4 MiB for connections, which serves a large file.
fn with_little_memory(dir: &std::path::Path) -> App {
    std::fs::write(dir.join("large"), vec![b'x'; 1_000_000]).unwrap();
    let files = StaticFiles::new();
    let path = StaticPath { path: dir.into(), overrides: Overrides::default() };
    files.set([("/files".to_owned(), path)]).unwrap();
    let listener = ListenerConfig { files, ..ListenerConfig::default() };
    let limits =
        Limits { max_client_memory: Some(20 << 20), max_connections: 100, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    Transport::Http2.app_with(config, listener, echo(hello))
}

/// Asserts that clients are served although the memory for connections is used up by others, and
/// that it stays within its limit.
fn assert_served(app: &App) {
    let budget = app.server.budget();
    let (used, limit) = (|| budget.used(Share::Connections), budget.limit(Share::Connections));
    wait_until("the memory is used up", || used() > limit / 10 * 9);
    let mut clients = Vec::new();
    for _ in 0..8 {
        let (mut client, mut socket) =
            (Transport::Https13.connect(app), Transport::Https13.open(app));
        assert_eq!(client.get("/").status, 200);
        socket.send(&masked_frame(0x81, b"hello"));
        assert_eq!(socket.frame(), Some((1, b"hello".to_vec())));
        clients.push((client, socket));
    }
    assert!(used() <= limit, "{} of {limit}", used());
    // Those that were served first still are.
    for (client, socket) in &mut clients {
        assert_eq!(client.get("/").status, 200);
        socket.send(&masked_frame(0x81, b"again"));
        assert_eq!(socket.frame(), Some((1, b"again".to_vec())));
    }
}

#[test]
fn idle_websockets_of_a_few_http2_connections_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let app = with_little_memory(dir.path());
    // Each connection takes 80 KiB, and 120 KiB more for more than 64 streams. Each WebSocket takes
    // 8 KiB.
    let mut flood: Vec<_> = (0..5).map(|_| Sockets::at(app.address)).collect();
    for sockets in &mut flood {
        (0..71).for_each(|at| sockets.open(2 * at + 1));
    }
    assert_served(&app);
}

/// Starts a server with TLS and 4 MiB for connections, whose application never answers requests for
/// `/keep`.
fn that_keeps_requests() -> App {
    let limits =
        Limits { max_client_memory: Some(20 << 20), max_connections: 100, ..Limits::default() };
    let (mut kept, mut rest) = (Vec::new(), echo(hello));
    Transport::Http2.app_with(
        Config { limits, ..Config::default() },
        ListenerConfig::default(),
        Box::new(move |link, event| match event {
            Event::Request(exchange) if exchange.path() == b"/keep" => kept.push(exchange),
            event => rest(link, event),
        }),
    )
}

#[test]
fn a_connection_whose_memory_is_refused_is_not_told_that_its_frames_are_wrong() {
    let app = that_keeps_requests();
    let mut peer = Peer::new(&app);
    // Each of the frames may take a buffer, which an entry of the header table may keep. The
    // requests that are under way keep the connection from being evicted earlier.
    let outcome = (0..115).find_map(|at| {
        let (stream, is_kept) = (2 * at + 1, at < 5);
        let head = block(&get(if is_kept { "/keep" } else { "/" }));
        let (most, last) = head.split_at(head.len() - 1);
        peer.send(frame(kind::HEADERS, END_STREAM, stream, most));
        peer.send(frame(kind::CONTINUATION, END_HEADERS, stream, last));
        if is_kept {
            return None;
        }
        Some(peer.outcome(stream)).filter(|outcome| *outcome != Heard::Status(200))
    });
    assert_eq!(outcome, Some(Heard::Goaway(code::NO_ERROR)));
}

#[test]
fn a_header_table_behind_a_request_that_is_under_way_keeps_nobody_out() {
    let app = that_keeps_requests();
    let mut peer = Peer::new(&app);
    // Each of these heads may take a buffer, which an entry of the header table may keep.
    let long = "x".repeat(4 << 10);
    for at in 0..115 {
        let (stream, is_kept) = (2 * at + 1, at < 15);
        let path = if is_kept { "/keep" } else { "/" };
        let head = block(&[&get(path)[..], &[("a", &long)]].concat());
        peer.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &head));
        if !is_kept {
            assert_eq!(peer.outcome(stream), Heard::Status(200));
        }
    }
    assert_served(&app);
}

#[test]
fn unread_downloads_of_a_few_http2_connections_keep_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let app = with_little_memory(dir.path());
    // Each connection takes 80 KiB, and each stream 32 KiB.
    let mut flood: Vec<_> = (0..3).map(|_| Peer::new(&app)).collect();
    for peer in &mut flood {
        (0..38).for_each(|at| peer.ask(2 * at + 1, &get("/files/large")));
    }
    assert_served(&app);
}

#[test]
fn an_address_with_fewer_connections_gets_the_seat_of_a_websocket() {
    let limits = Limits { max_connections: 4, ..Limits::default() };
    let site = ListenerConfig {
        proxies: TrustedProxies::parse(["127.0.0.1"]).unwrap(),
        ..ListenerConfig::default()
    };
    let app = App::with(Config { limits, ..Config::default() }, site, echo(hello));
    let open = |address: &str| {
        let mut client = app.connect();
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: x\r\nX-Forwarded-For: {address}\r\n\r\n"
        );
        client.send(head);
        client.response().map(|response| (client, response.status))
    };
    let mut seated: Vec<_> = (0..4).map(|_| open("192.0.2.1").unwrap()).collect();
    let (_, status) = open("198.51.100.1").unwrap();
    assert_eq!(status, 101);
    // The newest WebSocket of the other address has made place.
    assert_eq!(seated[3].0.frame(), Some((8, TRY_AGAIN_LATER.to_vec())));
    assert!(seated[3].0.wait_for_close());
    seated[0].0.send(masked_frame(0x81, b"hello"));
    assert_eq!(seated[0].0.frame(), Some((1, b"hello".to_vec())));
}

#[test]
fn handshakes_that_wait_for_the_application_count_as_websockets() {
    const STREAMS: u32 = 91;
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let listener = ListenerConfig { proxies, ..ListenerConfig::default() };
    let mut waiting = Vec::new();
    let app = Transport::Http2.app_with(
        Config::default(),
        listener,
        Box::new(move |link, event| {
            let Event::Request(exchange) = event else { return };
            let is_last = !exchange.is_upgrade();
            waiting.push(exchange);
            if is_last {
                for mut exchange in waiting.drain(..) {
                    exchange.begin_response(if exchange.is_upgrade() { 403 } else { 200 });
                    link.send(Command::Respond(exchange));
                }
            }
        }),
    );
    let greedy = [CONNECT, &[("x-forwarded-for", "192.0.2.1")]].concat();
    let mut proxy: Vec<Sockets> = Vec::new();
    for at in 0..1000 {
        if at % STREAMS == 0 {
            proxy.push(Sockets::at(app.address));
        }
        proxy.last_mut().unwrap().peer.begin(2 * (at % STREAMS) + 1, &greedy);
    }
    wait_until("all wait", || app.requests() == 1000);
    let last = &mut proxy.last_mut().unwrap().peer;
    last.begin(201, &greedy);
    assert_eq!(last.outcome(201), Heard::Status(503));
    last.ask(203, &get("/"));
    assert_eq!(last.outcome(203), Heard::Status(200));
    // The places of handshakes that were not accepted are free.
    last.begin(205, &greedy);
    // The proxy's own request could overtake that of the client, which has had more than its turns.
    wait_until("the handshake waits", || app.requests() == 1002);
    last.ask(207, &get("/"));
    assert_eq!(last.outcome(205), Heard::Status(403));
}

#[test]
fn websockets_of_one_client_behind_a_proxy() {
    const STREAMS: u32 = 95;
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let listener = ListenerConfig { proxies, ..ListenerConfig::default() };
    let app = Transport::Http2.app_with(Config::default(), listener, echo(hello));
    let mut proxy: Vec<Sockets> = Vec::new();
    let greedy = [("x-forwarded-for", "192.0.2.1")];
    for at in 0..1000 {
        if at % STREAMS == 0 {
            proxy.push(Sockets::at(app.address));
        }
        proxy.last_mut().unwrap().open_with(2 * (at % STREAMS) + 1, &greedy);
    }
    let last = proxy.last_mut().unwrap();
    last.peer.begin(201, &[CONNECT, &greedy[..]].concat());
    assert_eq!(last.peer.outcome(201), Heard::Status(503));
    last.open_with(203, &[("x-forwarded-for", "192.0.2.2")]);
    // The end of one makes place for another.
    proxy[0].send(1, &masked_frame(0x88, &1000u16.to_be_bytes()));
    proxy[0].end(1);
    proxy[0].open_with(301, &greedy);
}
