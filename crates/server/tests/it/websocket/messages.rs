//! Messages, pings and close frames of WebSockets, as clients see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Link, MessageKind, Payload};
use rookery_server::{Config, Limits, ListenerConfig, OriginPolicy};

use crate::support::{App, Handler, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// Returns a handler that accepts each WebSocket, and calls `then` with it at once.
fn accepting(then: fn(&Link, u64)) -> Handler {
    Box::new(move |link, event| {
        let Event::Request(mut exchange) = event else { return };
        let socket = exchange.id();
        exchange.begin_response(101);
        link.send(Command::Respond(exchange));
        then(link, socket);
    })
}

#[test]
fn handshakes_that_proxies_have_changed_are_accepted() {
    let app = App::new(Limits::default(), hello);
    for connection in ["", "Connection: close\r\n", "Connection: keep-alive, Upgrade\r\n"] {
        for method in ["GET", "POST"] {
            let mut client = app.connect();
            client.send(format!(
                "{method} /ws HTTP/1.1\r\nHost: a\r\n{connection}Upgrade: WebSocket\r\nSec-WebSocket-Key: x\r\n\r\n"
            ));
            assert_eq!(client.response().unwrap().status, 101, "{method} {connection:?}");
            client.send(masked_frame(0x81, b"hello"));
            assert_eq!(client.frame(), Some((1, b"hello".to_vec())), "{method} {connection:?}");
        }
    }
}

#[test]
fn an_upgrade_to_something_else_is_answered_as_a_request() {
    let app = App::new(Limits::default(), hello);
    let mut client = app.connect();
    for upgrade in
        ["Upgrade: h2c\r\nConnection: Upgrade\r\n", "Upgrade: websocket\r\nConnection: Upgrade\r\n"]
    {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{upgrade}\r\n"));
        assert_eq!(client.response().unwrap().body, b"Hello, World!");
    }
}

#[test]
fn a_refused_handshake_is_answered_and_the_connection_kept() {
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        Box::new(|link, event| {
            let Event::Request(mut exchange) = event else { return };
            exchange.begin_response(403);
            exchange.set_response_body(b"no");
            link.send(Command::Respond(exchange));
        }),
    );
    let mut client = app.connect();
    let reply = client.upgrade("/ws");
    assert_eq!((reply.status, &reply.body[..]), (403, &b"no"[..]));
    assert_eq!(client.get("/").status, 403);
}

#[test]
fn a_peer_that_never_answers_a_close_is_dropped() {
    let app = App::new(
        Limits { ws_close_timeout: Duration::from_millis(200), ..Limits::default() },
        hello,
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x81, b"close"));
    assert_eq!(client.frame().unwrap().0, 8);
    assert!(client.wait_for_close());
    assert_eq!(app.await_event("closed"), "closed 1006");
}

#[test]
fn a_silent_connection_is_pinged() {
    let app = App::new(
        Limits { ws_ping_interval: Duration::from_millis(100), ..Limits::default() },
        hello,
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    // The pings are numbered, so that a pong shows which ping it belongs to.
    assert_eq!(client.frame(), Some((9, vec![0, 0, 0, 1])));
    assert_eq!(client.frame(), Some((9, vec![0, 0, 0, 2])));
}

#[test]
fn a_peer_that_answers_no_ping_is_dropped_and_any_byte_is_an_answer() {
    let time = Duration::from_secs(20);
    let app = App::new(
        Limits { ws_ping_interval: time, ws_ping_timeout: 3 * time, ..Limits::default() },
        hello,
    );
    let mut silent = app.connect();
    silent.upgrade("/ws");
    let mut talks = app.connect();
    talks.upgrade("/ws");
    // The client sends a message one byte at a time, and never completes it, for longer than the
    // other client's timeout.
    let message = masked_frame(0x81, &[b'a'; 100]);
    let is_closed = || app.log.lock().unwrap().iter().any(|line| line == "closed 1006");
    let mut sent = 0;
    while !is_closed() {
        assert!(sent < 12, "never dropped");
        talks.send([message[sent]]);
        talks.wait_until_server_has_read();
        sent += 1;
        app.advance(time / 2);
    }
    assert!(sent > 6, "{sent}");
    talks.send(&message[sent..]);
    loop {
        match talks.frame().expect("it was not dropped") {
            (9, payload) => talks.send(masked_frame(0x8A, &payload)),
            (opcode, payload) => break assert_eq!((opcode, payload.len()), (1, 100)),
        }
    }
    assert_eq!(app.log.lock().unwrap().iter().filter(|line| line.starts_with("closed")).count(), 1);
}

#[test]
fn a_pause_of_the_application_is_no_silence_of_the_peer() {
    let time = Duration::from_secs(20);
    let queue =
        rookery_exchange::QueueLimits { ws_max_receive_queue_messages: 1, ..Default::default() };
    let limits = Limits { ws_ping_interval: time, ws_ping_timeout: 4 * time, ..Limits::default() };
    let mut answer = echo(hello);
    let (go, goes) = channel();
    let app = App::with(
        Config { limits, queue, ..Config::default() },
        ListenerConfig::default(),
        Box::new(move |link, event| {
            if matches!(event, Event::Message { .. }) {
                goes.recv_timeout(TEST_TIMEOUT).unwrap();
            }
            answer(link, event);
        }),
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    // The application processes a message while others wait. The server reads nothing meanwhile,
    // not even pongs.
    client.send(masked_frame(0x81, b"1").repeat(5));
    client.wait_until_server_has_read();
    let messages =
        || app.log.lock().unwrap().iter().filter(|line| line.starts_with("message")).count();
    for count in 1..4 {
        wait_until("the application has a message", || messages() == count);
        app.advance(8 * time);
        go.send(()).unwrap();
        assert_eq!(client.frame_after_pings(), (1, b"1".to_vec()));
    }
    for _ in 0..2 {
        go.send(()).unwrap();
    }
}

#[test]
fn a_page_of_another_origin_is_refused_before_the_application_is_asked() {
    let policy = OriginPolicy::Hosts(vec!["*.example.org".to_owned()]);
    let site = |origins| ListenerConfig { origins, ..ListenerConfig::default() };
    let (any, same, listed) = (None, Some(OriginPolicy::SameHost), Some(policy));
    let table = [
        (&any, "Origin: https://evil.org\r\n", 101),
        (&same, "", 101),
        (&same, "Origin: http://here:80\r\n", 101),
        (&same, "Origin: https://here\r\n", 101),
        (&same, "Origin: https://evil.org\r\n", 403),
        (&same, "Origin: https://www.example.org\r\n", 403),
        (&same, "Origin: null\r\n", 403),
        (&same, "Origin: http://here\r\nOrigin: http://here\r\n", 403),
        (&listed, "Origin: https://www.example.org\r\n", 101),
        (&listed, "Origin: http://here\r\n", 101),
        (&listed, "Origin: https://evilexample.org\r\n", 403),
    ];
    for (policy, origin, status) in table {
        let app = App::with(Config::default(), site(policy.clone()), echo(hello));
        let mut client = app.connect();
        client.send(format!(
            "GET /ws HTTP/1.1\r\nHost: here\r\n{origin}Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
        ));
        assert_eq!(client.response().unwrap().status, status, "{policy:?} {origin}");
        assert_eq!(app.requests(), usize::from(status == 101), "{policy:?} {origin}");
        // The origin of requests that open no WebSocket is not checked.
        let mut client = app.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: here\r\n{origin}\r\n"));
        assert_eq!(client.response().unwrap().status, 200);
    }
}

#[test]
fn a_peer_that_pings_and_never_reads_does_not_fill_memory() {
    let limits = Limits { ws_stall_timeout: Duration::from_millis(500), ..Limits::default() };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.shrink_receive_buffer();
    client.upgrade("/ws");
    let pings = masked_frame(0x89, &[b'p'; 125]).repeat(1000);
    // The client sends megabytes of pongs one by one. In a debug build on a small machine that
    // takes long.
    let until = Instant::now() + 6 * TEST_TIMEOUT;
    client.socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    // The server has given up the client once writing fails. It writes nothing meanwhile, so the
    // client makes no progress.
    while std::io::Write::write_all(&mut client.socket, &pings).is_ok() && Instant::now() < until {}
    app.await_event("closed 1006");
}

#[test]
fn the_application_hears_why_a_websocket_was_closed() {
    let app = App::new(Limits::default(), hello);
    let longest = "\u{e9}".repeat(61) + "!";
    for (reason, shown) in [("bye \u{fc}", "bye \u{fc}"), (longest.as_str(), longest.as_str())] {
        let mut client = app.connect();
        client.upgrade("/ws");
        client.send(masked_frame(0x88, &[&4001u16.to_be_bytes()[..], reason.as_bytes()].concat()));
        assert_eq!(client.frame(), Some((8, 4001u16.to_be_bytes().to_vec())));
        app.await_event(&format!("closed 4001 {shown:?} true"));
    }
    // A close frame after a violation of the protocol is ignored.
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send([masked_frame(0x83, b""), masked_frame(0x88, b"\x03\xe8late")].concat());
    assert_eq!(client.frame().unwrap().0, 8);
    app.await_event("closed 1006");
    assert!(app.log.lock().unwrap().iter().all(|line| !line.contains("late")));
}

/// An application that counts what it sends: it sends until it is told to wait, and continues when
/// it is told to.
#[test]
fn an_application_that_counts_waits_and_is_told_to_go_on() {
    const ROUNDS: usize = 5;
    let mut backlog = None;
    let mut rounds = 0;
    let mut fill =
        move |link: &rookery_exchange::Link, socket, backlog: &rookery_exchange::SendBacklog| {
            rounds += 1;
            let mut waits = rounds > ROUNDS;
            while !waits {
                waits = backlog.count_sent(100_000) == Some(false);
                // The limit of a megabyte may be exceeded by one message, however fast the client
                // reads.
                assert!(backlog.waiting() <= (1 << 20) + 100_000, "{}", backlog.waiting());
                let payload = Payload::Pooled(vec![7; 100_000]);
                link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
            }
            if rounds > ROUNDS {
                link.send(Command::Close { socket, code: 1000, reason: Vec::new() });
            }
        };
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        Box::new(move |link, event| match event {
            Event::Request(mut exchange) => {
                let (socket, own) = (exchange.id(), Arc::clone(exchange.backlog().unwrap()));
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
                fill(link, socket, &own);
                backlog = Some(own);
            }
            Event::Drained { socket, .. } => {
                let own = backlog.as_deref().unwrap();
                assert!(own.waiting() < 1 << 20, "{}", own.waiting());
                fill(link, socket, own);
            }
            Event::Closed { .. } => assert_eq!(backlog.as_deref().unwrap().count_sent(1), None),
            _ => {}
        }),
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    let mut bytes = 0;
    loop {
        let (opcode, payload) = client.frame().unwrap();
        if opcode == 8 {
            break;
        }
        bytes += payload.len();
    }
    assert!(bytes >= ROUNDS << 20, "{bytes}");
    client.send(masked_frame(0x88, &1000u16.to_be_bytes()));
    app.await_event("closed 1000");
}

#[test]
fn the_application_may_ping() {
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        accepting(|link, socket| {
            link.send(Command::Ping { socket });
            link.send(Command::Close { socket, code: 1000, reason: Vec::new() });
            link.send(Command::Ping { socket });
        }),
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    assert_eq!(client.frame().unwrap().0, 9);
    assert_eq!(client.frame().unwrap().0, 8);
    client.send(masked_frame(0x88, &1000u16.to_be_bytes()));
    assert!(client.wait_for_close());
    app.await_event("closed 1000");
}

#[test]
fn reading_pauses_while_the_application_does_not_take_messages() {
    let holds = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&holds);
    let queue =
        rookery_exchange::QueueLimits { ws_max_receive_queue_messages: 16, ..Default::default() };
    let mut answer = echo(hello);
    let app = App::with(
        Config { queue, ..Config::default() },
        ListenerConfig::default(),
        Box::new(move |link, event| {
            while matches!(event, Event::Message { .. }) && held.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            answer(link, event);
        }),
    );
    let mut client = app.connect();
    client.upgrade("/ws");
    let message = masked_frame(0x82, &vec![1; 60_000]);
    client.socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut sent = 0;
    let mut partly = 0;
    // Writing blocks when the server has stopped reading and the sockets' buffers are full.
    'full: while sent < 2000 {
        partly = 0;
        while partly < message.len() {
            match std::io::Write::write(&mut client.socket, &message[partly..]) {
                Ok(n) => partly += n,
                Err(_) => break 'full,
            }
        }
        sent += 1;
    }
    assert!(sent < 2000, "the server read on");
    holds.store(false, Ordering::Relaxed);
    client.socket.set_write_timeout(None).unwrap();
    // The server continues to read only if the client reads the echoes.
    for _ in 0..sent {
        assert_eq!(client.frame().unwrap().1.len(), 60_000);
    }
    client.send(&message[partly..]);
    assert_eq!(client.frame().unwrap().1.len(), 60_000);
}

/// More WebSockets send at once than the application has capacity for, some of them end while they
/// wait, and no message of the others is lost or waits for ever.
#[test]
fn websockets_that_wait_for_capacity_are_woken_one_after_the_other() {
    const SOCKETS: usize = 150;
    const MESSAGES: usize = 40;
    let is_held = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&is_held);
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        Box::new(move |link, event| match event {
            Event::Request(mut exchange) => {
                exchange.begin_response(101);
                link.send(Command::Respond(exchange));
            }
            Event::Message { socket, kind, payload, .. } => {
                while held.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                link.send(Command::Send { socket, kind, payload });
            }
            _ => {}
        }),
    );
    let mut clients: Vec<_> = (0..SOCKETS).map(|_| app.connect()).collect();
    for client in &mut clients {
        client.upgrade("/ws");
    }
    for client in &mut clients {
        for at in 0..MESSAGES {
            client.send(masked_frame(0x81, at.to_string().as_bytes()));
        }
    }
    // Every third one goes while it waits.
    let mut at = 0;
    clients.retain(|_| {
        at += 1;
        at % 3 > 0
    });
    is_held.store(false, Ordering::Relaxed);
    for client in &mut clients {
        for at in 0..MESSAGES {
            assert_eq!(client.frame(), Some((1, at.to_string().into_bytes())));
        }
    }
}
