//! Clients exceed each share of the memory budget.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rookery_exchange::{
    BodySource, Command, Event, Exchange, MessageKind, OwnedBody, Payload, ResponseBody, Share,
};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use crate::support::tls::{settings, site};
use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// Returns limits with a budget of 20 MiB: 4 MiB for connections, 6 MiB for what clients send, 1
/// MiB for messages that wait for the application, and 9 MiB for what clients are sent.
fn small() -> Limits {
    of_memory(20 << 20)
}

/// Returns limits with a budget of this size, of which a fifth is for connections.
fn of_memory(bytes: usize) -> Limits {
    Limits { max_client_memory: Some(bytes), max_connections: 100, ..Limits::default() }
}

fn used(app: &App, share: Share) -> usize {
    app.server.budget().used(share)
}

/// Waits until at most `bytes` of a share are used.
fn await_used(app: &App, share: Share, bytes: usize) {
    let until = Instant::now() + TEST_TIMEOUT;
    while used(app, share) > bytes {
        assert!(Instant::now() < until, "{share:?}: {} of {bytes}", used(app, share));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the used bytes of a share once they are at most `bytes` and have not changed for 200 ms.
fn settled(app: &App, share: Share, bytes: usize) -> usize {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        await_used(app, share, bytes);
        let held = used(app, share);
        std::thread::sleep(Duration::from_millis(200));
        if used(app, share) == held {
            return held;
        }
        assert!(Instant::now() < until, "{share:?} does not come to rest");
    }
}

/// Returns the first bytes that were sent to each client that was sent anything. The bytes stay
/// unread.
fn heard<const LEN: usize>(clients: &[Client]) -> Vec<[u8; LEN]> {
    let of_one = |client: &Client| {
        let mut said = [0; LEN];
        client.socket.set_nonblocking(true).unwrap();
        let is_said = matches!(client.socket.peek(&mut said), Ok(len) if len == LEN);
        client.socket.set_nonblocking(false).unwrap();
        is_said.then_some(said)
    };
    clients.iter().filter_map(of_one).collect()
}

/// Waits until the server has rejected this number of requests for lack of memory.
fn await_overloads(app: &App, count: u64) {
    let until = Instant::now() + TEST_TIMEOUT;
    while app.server.reports().count(Rejection::Overload) < count {
        assert!(Instant::now() < until, "{:?}", app.server.budget());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn post(client: &mut Client, len: usize, sent: usize) {
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
    // A reset during the write also counts as a rejection.
    let _ = client.socket.write_all(&vec![b'a'; sent]);
}

#[test]
fn half_sent_bodies() {
    let app = App::new(small(), hello);
    let limit = app.server.budget().limit(Share::Incoming);
    assert_eq!(limit, 6 << 20);
    let mut slow: Vec<Client> = (0..10).map(|_| app.connect()).collect();
    for client in &mut slow {
        post(client, 1_000_000, 900_000);
    }
    await_overloads(&app, 4);
    await_used(&app, Share::Incoming, limit);
    // A client that holds little is served, because the client that holds the most is evicted.
    for len in [5000, 50_000, 300_000] {
        let mut honest = app.connect();
        post(&mut honest, len, len);
        assert_eq!(honest.response().unwrap().status, 200, "{len}");
        assert_eq!(honest.get("/").status, 200);
    }
    assert!(used(&app, Share::Incoming) <= limit);
    let refused = usize::try_from(app.server.reports().count(Rejection::Overload)).unwrap();
    assert!((4..10).contains(&refused), "{refused}");
    wait_until("who was refused is told", || heard::<12>(&slow).len() == refused);
    assert!(heard(&slow).iter().all(|answer| answer == b"HTTP/1.1 503"));
    drop(slow);
    await_used(&app, Share::Incoming, 0);
}

#[test]
fn a_body_in_chunks_of_a_byte_costs_no_more_than_its_bytes() {
    let app = App::new(small(), |exchange| {
        assert!(matches!(exchange.body().source(), BodySource::Memory));
        let reply = format!("{} {}", exchange.body().len(), exchange.capacity());
        exchange.begin_response(200);
        exchange.set_response_body(reply.as_bytes());
    });
    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(b"1\r\na\r\n".repeat(100_000));
    client.send("0\r\n\r\n");
    let reply = String::from_utf8(client.response().unwrap().body).unwrap();
    let (len, capacity) = reply.split_once(' ').unwrap();
    assert_eq!(len, "100000");
    // A table entry for each byte would take another 16 bytes.
    assert!(capacity.parse::<usize>().unwrap() < 4 * 100_000, "{capacity}");
}

#[test]
fn connections_whose_close_lingers_leave_memory_to_others() {
    let limits = Limits { max_connections: 1000, ..of_memory(10 << 20) };
    let config = Config { limits, ..Config::default() };
    for (in_use, has_tls) in [(32 << 10, false), (80 << 10, true)] {
        let listener =
            if has_tls { site(settings(&["localhost"])) } else { ListenerConfig::default() };
        let app = App::with(config.clone(), listener, echo(hello));
        let connect = || if has_tls { app.secure() } else { app.connect() };
        let begin = |count| {
            let clients = (0..count).map(|_| {
                let mut client = connect();
                post(&mut client, 100_000, 0);
                client
            });
            clients.collect::<Vec<_>>()
        };
        let places = app.server.budget().limit(Share::Connections) / in_use;
        let slow = begin(places - 1);
        wait_until("the share is full", || used(&app, Share::Connections) >= (places - 1) * in_use);
        app.advance(Duration::from_secs(5));
        // These take the memory of slow ones, whose connections remain open until they have read
        // the refusal.
        let others = begin(places / 2);
        await_overloads(&app, places as u64 / 4);
        assert_eq!(connect().get("/").status, 200, "TLS: {has_tls}");
        drop((slow, others));
    }
}

#[test]
fn long_heads() {
    let limits = of_memory(10 << 20);
    let app = App::new(limits, hello);
    let limit = app.server.budget().limit(Share::Connections);
    // The share has 2 MiB: for 64 connections, or for about 20 of them with half a head of 70 KB.
    let mut slow: Vec<Client> = (0..40).map(|_| app.connect()).collect();
    for client in &mut slow {
        let head = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(70_000));
        let _ = client.socket.write_all(head.as_bytes());
    }
    await_overloads(&app, 5);
    await_used(&app, Share::Connections, limit);
    let mut honest = app.connect();
    assert_eq!(honest.get("/").status, 200);
    drop((slow, honest));
    await_used(&app, Share::Connections, 0);
}

#[test]
fn connections_that_are_all_being_served() {
    // Each connection takes 32 KiB, and two fifths of the memory are for connections.
    let limits = Limits { max_connections: 9, ..of_memory(3 * (32 << 10) * 5 / 2) };
    let goes = Arc::new(AtomicBool::new(false));
    let go = Arc::clone(&goes);
    let app = App::new(limits, move |exchange| {
        while !go.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        hello(exchange);
    });
    let mut seated: Vec<Client> = (0..3).map(|_| app.connect()).collect();
    for client in &mut seated {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &seated {
        client.wait_until_server_has_read();
    }
    assert_eq!(app.connect().response().unwrap().status, 503);
    goes.store(true, Ordering::Relaxed);
    for client in &mut seated {
        assert_eq!(client.response().unwrap().status, 200);
    }
}

#[test]
fn half_sent_messages() {
    let app = App::new(small(), hello);
    let limit = app.server.budget().limit(Share::Incoming);
    let mut slow: Vec<Client> = (0..10).map(|_| app.connect()).collect();
    for client in &mut slow {
        client.upgrade("/ws");
        let message = masked_frame(0x82, &vec![7; 1_100_000]);
        let _ = client.socket.write_all(&message[..1_000_000]);
    }
    await_overloads(&app, 4);
    await_used(&app, Share::Incoming, limit);
    let mut honest = app.connect();
    honest.upgrade("/ws");
    honest.send(masked_frame(0x82, &vec![7; 300_000]));
    assert_eq!(honest.frame().unwrap().1.len(), 300_000);
    let refused = usize::try_from(app.server.reports().count(Rejection::Overload)).unwrap();
    assert!(refused < 10, "{refused}");
    wait_until("who was refused is told", || heard::<4>(&slow).len() == refused);
    let is_overload =
        |frame: &[u8; 4]| (frame[0], &frame[2..]) == (0x88, &1013u16.to_be_bytes()[..]);
    assert!(heard(&slow).iter().all(is_overload));
    drop(slow);
    await_used(&app, Share::Incoming, 0);
}

#[test]
fn queues_of_peers_that_do_not_read() {
    // The share of what is sent has 16 MiB, which one queue of 15 MB fills.
    let app = App::with(
        Config { limits: of_memory(36 << 20), ..Config::default() },
        ListenerConfig::default(),
        Box::new(|link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, payload, .. } => {
                // On request, the responses exceed what the sockets buffer.
                let count = if payload.as_bytes() == b"much" { 150 } else { 1 };
                for _ in 0..count {
                    let payload = Payload::Pooled(vec![0; 100_000]);
                    link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
                }
            }
            _ => {}
        }),
    );
    let limit = app.server.budget().limit(Share::Outgoing);
    let mut slow: Vec<Client> = (0..8).map(|_| app.connect()).collect();
    for client in &mut slow {
        client.upgrade("/ws");
        client.send(masked_frame(0x81, b"much"));
    }
    await_overloads(&app, 2);
    await_used(&app, Share::Outgoing, limit);
    let mut honest = app.connect();
    honest.upgrade("/ws");
    honest.send(masked_frame(0x81, b"little"));
    assert_eq!(honest.frame().unwrap().1.len(), 100_000);
    assert!(app.server.reports().count(Rejection::Overload) < 8);
    drop(slow);
    await_used(&app, Share::Outgoing, 0);
}

#[test]
fn replies_that_are_not_read() {
    for set_body in [copied as fn(&mut Exchange, &[u8]), owned] {
        let app = pages(set_body);
        let limit = app.server.budget().limit(Share::Outgoing);
        // Each response counts with all its bytes, so that two fit.
        let mut slow: Vec<Client> = (0..4).map(|_| app.connect()).collect();
        for (at, client) in slow.iter_mut().enumerate() {
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            if at >= 2 {
                assert_eq!(client.response().unwrap().status, 503, "{at}");
            }
        }
        assert!(2 * LARGE < limit && used(&app, Share::Outgoing) == 2 * LARGE);
        // A smaller response evicts the newest of the large ones.
        let mut honest = app.connect();
        assert_eq!(honest.get("/medium").body.len(), MEDIUM);
        await_used(&app, Share::Outgoing, LARGE);
        // The body of a response to HEAD is not sent, and does not count.
        honest.send("HEAD /medium HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(honest.response_to("HEAD").unwrap().status, 200);
        await_used(&app, Share::Outgoing, LARGE);
        assert_eq!(slow[0].response().unwrap().body.len(), LARGE, "the oldest is served");
        drop(slow);
        await_used(&app, Share::Outgoing, 0);
    }
}

#[test]
fn compressors() {
    let page = b"compress me ".repeat(50_000);
    // A large compressor takes 512 KiB, and compressors may use a half of what is for responses.
    for (budget, encoding) in [(20 << 20, Some("gzip")), (2 << 20, None)] {
        let limits = Limits { max_client_memory: Some(budget), ..Limits::default() };
        let page = page.clone();
        let app = App::new(limits, move |exchange| {
            exchange.begin_response(200);
            exchange.set_response_body(if exchange.path() == b"/small" {
                &page[..1000]
            } else {
                &page
            });
        });
        let mut client = app.connect();
        for (path, encoding) in [("/", encoding), ("/small", Some("gzip"))] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
            assert_eq!(
                client.response().unwrap().header("content-encoding"),
                encoding,
                "{budget} {path}"
            );
        }
        await_used(&app, Share::Outgoing, 0);
    }
}

#[test]
fn messages_that_wait_for_the_application() {
    // In the first case the share of the budget is less than the limit of the queue.
    let queue =
        rookery_exchange::QueueLimits { ws_max_receive_queue_size: 2 << 20, ..Default::default() };
    reading_stops(Config { limits: small(), ..Config::default() });
    reading_stops(Config { queue, ..Config::default() });
}

/// Asserts that the server stops reading a WebSocket whose messages the application does not take.
fn reading_stops(config: Config) {
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let app = App::with(
        config,
        ListenerConfig::default(),
        Box::new(move |link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { .. } => {
                while held.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }),
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    client.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let message = masked_frame(0x82, &vec![1; 60_000]);
    // The limit is 1 or 2 MiB. With what the sockets buffer, that is less than 60 MB.
    let sent = (0..1000).take_while(|_| client.socket.write_all(&message).is_ok()).count();
    holds.store(false, Ordering::Relaxed);
    assert!(sent < 1000, "the server read on");
}

/// The bytes of a response that no client and no socket buffers.
const LARGE: usize = 15_000_000;
const MEDIUM: usize = 8_000_000;

/// Sets the body of a response to a copy of these bytes.
fn copied(exchange: &mut Exchange, bytes: &[u8]) {
    exchange.set_response_body(bytes);
}

/// Sets the body of a response to one in memory of its own, as a long response of a worker has.
fn owned(exchange: &mut Exchange, bytes: &[u8]) {
    let body = OwnedBody::from_end(bytes.to_vec(), bytes.len());
    exchange.response_mut().set_body(ResponseBody::Owned(body));
}

/// Starts an application that responds to `/large` with 15 MB, to `/medium` with 8 MB, and to
/// everything else with 20 KB.
fn pages(set_body: fn(&mut Exchange, &[u8])) -> App {
    let page = vec![b'x'; LARGE];
    App::new(Limits { max_client_memory: Some(100 << 20), ..Limits::default() }, move |exchange| {
        let len = match exchange.path() {
            b"/large" => LARGE,
            b"/medium" => MEDIUM,
            _ => 20_000,
        };
        exchange.begin_response(200);
        set_body(exchange, &page[..len]);
    })
}

#[test]
fn replies_behind_which_the_body_of_the_next_request_trickles() {
    let app = pages(copied);
    let mut slow: Vec<Client> = (0..9).map(|_| app.connect()).collect();
    for client in &mut slow {
        client.send(
            "GET /large HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\na",
        );
    }
    let until = Instant::now() + TEST_TIMEOUT;
    while used(&app, Share::Outgoing) < 2 * LARGE {
        assert!(Instant::now() < until, "{:?}", app.server.budget());
        std::thread::sleep(Duration::from_millis(5));
    }
    // The server waits for the body of the second request.
    app.advance(Duration::from_secs(2));
    let mut honest = app.connect();
    assert_eq!(honest.get("/medium").status, 200, "nine peers keep everybody else from replies");
    drop(slow);
    await_used(&app, Share::Outgoing, 0);
}

/// Starts as many listeners as there are threads for files. The spool folder of each listener makes
/// its thread wait in the function for log lines.
fn stalled_disk(app: &App, notice: fn(&str)) -> (Vec<rookery_server::Listener>, Vec<Client>) {
    let mut listeners = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let spool = Arc::new(rookery_server::SpoolFolder::new("/nowhere/at/all", notice));
        let site = ListenerConfig { spool, ..ListenerConfig::default() };
        let listener = app.server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let mut client = Client::connect(listener.local_addr().unwrap());
        post(&mut client, 2_000_000, 2_000_000);
        listeners.push(listener);
        clients.push(client);
    }
    (listeners, clients)
}

#[test]
fn what_waits_for_a_disk_that_stands_still_is_charged_when_its_client_has_gone() {
    static HOLDS: AtomicBool = AtomicBool::new(true);
    static STALLED: AtomicUsize = AtomicUsize::new(0);
    /// Releases the threads when a test fails.
    struct Release;
    impl Drop for Release {
        fn drop(&mut self) {
            HOLDS.store(false, Ordering::SeqCst);
        }
    }
    let page = b"compress me ".repeat(50_000);
    // The share of what clients send has 18 MiB: for the four requests whose threads wait, and for
    // some more.
    let limits = of_memory(60 << 20);
    let app = App::new(limits, move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(if exchange.path() == b"/small" {
            &page[..30_000]
        } else {
            &page
        });
    });
    let stalled = stalled_disk(&app, |_| {
        STALLED.fetch_add(1, Ordering::SeqCst);
        while HOLDS.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let release = Release;
    let until = Instant::now() + TEST_TIMEOUT;
    while STALLED.load(Ordering::SeqCst) < 4 {
        assert!(Instant::now() < until, "{STALLED:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The first response needs a large compressor, and the second one a small one.
    for (path, held) in [("/", 512 << 10), ("/small", 30_000)] {
        let asked = used(&app, Share::Outgoing);
        let mut client = app.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
        app.await_event(&format!("request {path}"));
        let until = Instant::now() + TEST_TIMEOUT;
        while used(&app, Share::Outgoing) < asked + held {
            assert!(Instant::now() < until, "{:?}", app.server.budget());
            std::thread::sleep(Duration::from_millis(1));
        }
        // The server notices a reset in any state.
        client.reset();
        app.advance(Duration::from_secs(2));
        let used = used(&app, Share::Outgoing);
        assert!(used >= asked + held, "{path}: {used}, {asked} before");
    }
    // Each upload has a megabyte in a batch that waits for a thread. Together they exceed the
    // share, but not the memory.
    for _ in 0..20 {
        let mut client = app.connect();
        post(&mut client, 2_000_000, 1_500_000);
    }
    await_overloads(&app, 1);
    // Evicted requests count until they have released their memory. Batches that wait for the disk
    // are not released.
    let limit = app.server.budget().limit(Share::Incoming);
    let held = settled(&app, Share::Incoming, limit);
    assert!(held > limit / 2 && held <= limit, "{held} of {limit}");
    drop((release, stalled));
    await_used(&app, Share::Incoming, 0);
    await_used(&app, Share::Outgoing, 0);
    // The server works as before.
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(client.response().unwrap().header("content-encoding"), Some("gzip"));
}

#[test]
fn a_websocket_that_has_gone_holds_nothing_while_the_application_is_busy() {
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let queue = rookery_exchange::QueueLimits {
        ws_max_receive_queue_messages: 1,
        ..rookery_exchange::QueueLimits::default()
    };
    let app = App::with(
        Config { limits: of_memory(36 << 20), queue, ..Config::default() },
        ListenerConfig::default(),
        Box::new(move |link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, .. } => {
                let payload = Payload::Pooled(vec![0; 10_000_000]);
                link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
                link.flush();
                while held.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }),
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x81, b"one"));
    let until = Instant::now() + TEST_TIMEOUT;
    while used(&app, Share::Outgoing) == 0 {
        assert!(Instant::now() < until, "nothing queued");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The application does not take these messages, so that the server stops reading.
    for _ in 0..3 {
        client.send(masked_frame(0x81, b"more"));
        std::thread::sleep(Duration::from_millis(50));
    }
    // The response is unread, so that the close is a reset.
    drop(client);
    await_used(&app, Share::Outgoing, 0);
    holds.store(false, Ordering::Relaxed);
}
