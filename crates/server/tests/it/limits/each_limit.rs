//! Exceeds each limit over a real socket.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Share};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use super::minimum_rates::trickle;
use crate::support::{App, Client, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

#[test]
fn head_bytes() {
    let app = App::new(Limits { max_header_size: 16 << 10, ..Limits::default() }, hello);
    let get = |len: usize| {
        let mut client = app.connect();
        // A reset during the write also counts as a rejection.
        let _ = client.socket.write_all(
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(len)).as_bytes(),
        );
        client.response().map(|reply| reply.status)
    };
    assert_eq!(get(10_000), Some(200));
    assert_eq!(get(20_000), Some(431));
    assert_eq!(app.server.reports().count(Rejection::HeadTooLarge), 1);
    assert_eq!(app.requests(), 1);
}

#[test]
fn the_default_head_takes_a_value_of_80000_bytes_and_not_one_of_200000() {
    let app = App::new(Limits::default(), hello);
    for (len, status) in [(80_000, 200), (200_000, 431)] {
        let mut client = app.connect();
        let _ = client.socket.write_all(
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(len)).as_bytes(),
        );
        assert_eq!(client.response().unwrap().status, status, "{len}");
    }
}

#[test]
fn header_lines() {
    for (limit, lines, status) in
        [(2000, 2000, 200), (2000, 2001, 431), (50, 50, 200), (50, 51, 431), (150, 151, 431)]
    {
        let app = App::new(Limits { max_headers: limit, ..Limits::default() }, hello);
        let mut client = app.connect();
        let head: String =
            (1..lines).map(|at| format!("X-{at}: {at}\r\n")).collect::<Vec<_>>().concat();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n"));
        assert_eq!(client.response().unwrap().status, status, "{lines} of {limit}");
    }
}

/// hyper's table of headers has a maximum size of its own, and cannot be made for an unlimited
/// number.
#[test]
fn header_lines_without_a_limit() {
    let limits = Limits { max_headers: usize::MAX, max_header_size: 1 << 20, ..Limits::default() };
    let app = App::new(limits, hello);
    for (lines, status) in [(101, 200), (24_576, 200), (24_577, 431), (40_000, 431), (101, 200)] {
        let mut client = app.connect();
        let head: String =
            (1..lines).map(|at| format!("X-{at}: {at}\r\n")).collect::<Vec<_>>().concat();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n"));
        assert_eq!(client.response().unwrap().status, status, "{lines}");
    }
}

#[test]
fn a_client_that_sends_everything_first_reads_why_it_is_refused() {
    let app = App::new(Limits { max_body_size: 1000, ..Limits::default() }, hello);
    let body = vec![b'x'; 30 << 20];
    for framing in ["Content-Length: 31457280", "Transfer-Encoding: chunked"] {
        let mut client = app.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        if framing.starts_with("Transfer") {
            client.send(format!("{:x}\r\n", body.len()));
        }
        client.send(&body);
        assert_eq!(client.response().expect("an answer").status, 413, "{framing}");
    }
    assert_eq!(app.requests(), 0);
}

/// The server's table of headers has a maximum size as well, beyond which it would panic.
#[test]
fn a_response_has_at_most_ten_thousand_headers() {
    let app = App::new(Limits::default(), |exchange| {
        exchange.begin_response(200);
        let pushed = (0..40_000).filter(|at| {
            let name = format!("X-{at}");
            exchange.push_response_header(name.as_bytes(), b"v").is_ok()
        });
        let text = pushed.count().to_string();
        exchange.set_response_body(text.as_bytes());
    });
    let mut client = app.connect();
    for _ in 0..2 {
        let reply = client.get("/");
        assert_eq!((reply.status, &*reply.text()), (200, "10000"));
        assert_eq!(reply.header("x-9999"), Some("v"));
    }
}

#[test]
fn disk_reserve() {
    let limits = Limits {
        body_buffer_size: 10,
        disk_reserve: u64::MAX / 2,
        disk_share: 1,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789");
    assert_eq!(client.response().unwrap().status, 200);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789a");
    assert_eq!(client.response().unwrap().status, 507);
}

#[test]
fn head_time() {
    let time = Duration::from_secs(20);
    let limits = Limits { header_timeout: time, min_header_rate: 0, ..Limits::default() };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\n");
    // Further lines do not extend the time.
    let seconds = trickle(&app, &mut client, b"X: a\r\n", Rejection::HeadTimeout);
    assert!((10..30).contains(&seconds), "{seconds}");
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\n");
    client.wait_until_server_has_read();
    app.advance(2 * time);
    assert_eq!(client.response().unwrap().status, 408);
    assert!(client.wait_for_close());
}

#[test]
fn idle_time() {
    let limits = Limits {
        idle_timeout: Duration::from_secs(20),
        // The timeout also applies to a connection on which nothing is sent.
        header_timeout: Duration::from_secs(30),
        ..Limits::default()
    };
    let (go, goes) = channel();
    let app = App::new(limits, move |exchange| {
        if exchange.path() == b"/slow" {
            goes.recv_timeout(TEST_TIMEOUT).unwrap();
        }
        hello(exchange);
    });
    let mut client = app.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /slow");
    // The application may take any time.
    app.advance(Duration::from_secs(100));
    go.send(()).unwrap();
    assert_eq!(client.response().unwrap().status, 200);
    assert_eq!(client.get("/").status, 200);
    app.advance(Duration::from_secs(40));
    assert!(client.wait_for_close());
    // One connection sends nothing, and the other one stops within a body.
    let (mut silent, mut client) = (app.connect(), app.connect());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
    client.wait_until_server_has_read();
    wait_until("both are accepted", || app.listener().connections() == 2);
    app.advance(Duration::from_secs(60));
    assert!(silent.wait_for_close());
    assert_eq!(client.response().unwrap().status, 408);
    assert!(client.wait_for_close());
}

#[test]
fn a_client_that_does_not_read_is_given_up() {
    let page = vec![0u8; 30_000_000];
    let app = App::new(Limits::default(), move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(&page);
    });
    let mut client = app.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the client is behind", || app.server.budget().used(Share::Outgoing) > 0);
    app.advance(2 * Limits::default().idle_timeout);
    wait_until("the client is given up", || app.listener().connections() == 0);
}

#[test]
fn the_queue_of_requests() {
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let queue = rookery_exchange::QueueLimits { max_queued_requests: 4, ..Default::default() };
    let mut answer = echo(hello);
    let app = App::with(
        Config { queue, ..Config::default() },
        ListenerConfig::default(),
        Box::new(move |link, event| {
            while held.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer(link, event);
        }),
    );
    let mut first = app.connect();
    first.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /held");
    // The application is busy with the first request, four requests wait, and the others are
    // rejected with a Retry-After.
    let mut clients: Vec<Client> = (0..8).map(|_| app.connect()).collect();
    for client in &mut clients {
        client.send("GET /queued HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    let until = Instant::now() + TEST_TIMEOUT;
    while app.server.reports().count(Rejection::Busy) < 4 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(1));
    }
    holds.store(false, Ordering::Relaxed);
    let replies: Vec<_> = clients.iter_mut().map(|client| client.response().unwrap()).collect();
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 4);
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    }
    assert_eq!(first.response().unwrap().status, 200);
    // Connections with a rejected request stay usable.
    assert!(clients.iter_mut().all(|client| client.get("/again").status == 200));
}

#[test]
fn a_request_whose_client_has_been_reset_is_not_for_the_application() {
    let (seen, count) =
        (Arc::new(std::sync::Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let (log, holds) = (Arc::clone(&seen), Arc::clone(&count));
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        Box::new(move |link, event| {
            let Event::Request(mut exchange) = event else { return };
            log.lock().unwrap().push((exchange.path().to_vec(), exchange.is_client_disconnected()));
            while exchange.path() == b"/held" && holds.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            hello(&mut exchange);
            link.send(Command::Respond(exchange));
        }),
    );
    let mut first = app.connect();
    first.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    app.await_event("request /held");
    let mut gone = app.connect();
    gone.send("GET /gone HTTP/1.1\r\nHost: a\r\n\r\n");
    gone.wait_until_server_has_read();
    gone.reset();
    wait_until("it is noticed", || app.listener().connections() == 1);
    count.store(false, Ordering::Relaxed);
    assert_eq!(first.response().unwrap().status, 200);
    app.await_event("request /gone");
    assert_eq!(app.connect().get("/after").status, 200);
    assert!(
        seen.lock().unwrap().contains(&(b"/gone".to_vec(), true)),
        "{:?}",
        seen.lock().unwrap()
    );
}

#[test]
fn frames_of_a_message() {
    // A message may have one frame for each 64 bytes of the largest message, and at least 4,096.
    for (size, most) in [(1000, 4096), (1 << 20, (1 << 20) / 64)] {
        let app = App::new(Limits { ws_max_message_size: size, ..Limits::default() }, hello);
        for (frames, is_refused) in [(most, false), (most + 1, true)] {
            let mut client = app.connect();
            client.upgrade("/ws");
            let rest = masked_frame(0x00, b"").repeat(frames - 2);
            client.send([masked_frame(0x01, b"a"), rest, masked_frame(0x80, b"z")].concat());
            let (opcode, payload) = client.frame().unwrap();
            let expected: (u8, &[u8]) =
                if is_refused { (8, &1008u16.to_be_bytes()) } else { (1, b"az") };
            assert_eq!((opcode, &payload[..2]), expected, "{frames} frames of {size} bytes");
        }
    }
}

#[test]
fn what_is_read_after_a_refusal() {
    let refused = |close_time| {
        let app = App::new(
            Limits { max_body_size: 10, ws_close_timeout: close_time, ..Limits::default() },
            hello,
        );
        let mut client = app.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000000\r\n\r\n");
        assert_eq!(client.response().unwrap().status, 413);
        (app, client)
    };
    // The limit in bytes is what the server reads and what the sockets buffer.
    let (_app, mut client) = refused(TEST_TIMEOUT);
    let piece = vec![0; 1 << 20];
    let sent = (0..400).take_while(|_| client.socket.write_all(&piece).is_ok()).count();
    assert!((100..200).contains(&sent), "{sent} MiB");
    // The limit in time.
    let (app, mut client) = refused(Duration::from_millis(200));
    let until = Instant::now() + TEST_TIMEOUT;
    while app.listener().connections() > 0 {
        let _ = client.socket.write_all(b"a");
        assert!(Instant::now() < until, "still read");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn errors_kept_for_the_application() {
    let app = App::new(Limits::default(), |exchange| {
        exchange.begin_response(500);
        exchange.response_mut().set_failure();
    });
    let reports = app.server.reports();
    reports.set_delivery(rookery_error::Delivery::Queue);
    let mut client = app.connect();
    for _ in 0..300 {
        assert_eq!(client.get("/").status, 500);
    }
    assert_eq!(reports.count(Rejection::Application), 300);
    assert_eq!(std::iter::from_fn(|| reports.take()).count(), 256);
}

#[test]
fn the_application_has_a_time() {
    let limits = Limits { request_timeout: Duration::from_secs(60), ..Limits::default() };
    let held = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&held);
    let app = App::with(
        Config { limits, ..Config::default() },
        ListenerConfig::default(),
        Box::new(move |link, event| {
            let Event::Request(mut exchange) = event else { return };
            if exchange.path() == b"/slow" {
                return theirs.lock().unwrap().push(exchange);
            }
            hello(&mut exchange);
            link.send(Command::Respond(exchange));
        }),
    );
    let mut client = app.connect();
    for _ in 0..2 {
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("the application has it", || !held.lock().unwrap().is_empty());
        app.advance(Duration::from_secs(40));
        assert!(!held.lock().unwrap()[0].is_client_disconnected(), "sooner than that");
        app.advance(Duration::from_secs(40));
        assert_eq!(client.response().unwrap().status, 504);
        // The connection continues, and the late response is discarded.
        let mut late = held.lock().unwrap().pop().unwrap();
        assert!(late.is_client_disconnected());
        hello(&mut late);
        app.server.link().send(Command::Respond(late));
        app.server.link().flush();
        assert_eq!(client.get("/").body, b"Hello, World!");
    }
    // A next request that was already sent makes no difference.
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the application has it", || !held.lock().unwrap().is_empty());
    app.advance(Duration::from_secs(80));
    assert_eq!(client.response().unwrap().status, 504);
    assert_eq!(client.response().unwrap().status, 200);
}
