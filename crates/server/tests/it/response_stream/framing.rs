//! The framing of streamed responses: chunks, the head before them, and how a client recognises the
//! end.

use std::io::{ErrorKind, Read as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rookery_exchange::{ChunkAdmission, Command, Event, Exchange, Payload, StreamOptions};
use rookery_server::{Config, Limits, ListenerConfig};

use super::{
    GET, Open, PULLED, PUSHED, ask, departures, ends_with, ok, pulling, pushing, read_to,
    streaming, ten,
};
use crate::support::{App, TEST_TIMEOUT, wait_until};

#[test]
fn a_pipelined_request_waits_for_the_end_of_a_stream() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) =
        ask(&app, &opened, &(GET.to_owned() + "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n"));
    open.give("one");
    read_to(&mut client, "one");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(app.requests(), 1);
    open.end();
    assert_eq!(client.response().unwrap().body, b"one");
    assert_eq!(client.response().unwrap().body, b"Hello, World!");
}

#[test]
fn pipelined_streams_come_one_after_the_other_to_a_client_that_reads_byte_by_byte() {
    let (app, opened) = pulling(Limits::default(), |open, n| {
        if n < 3 {
            open.give(format!("<{n}>"));
        } else {
            open.end();
        }
    });
    let mut client = app.connect();
    client.send(GET.repeat(5));
    let mut text = Vec::new();
    while text.windows(5).filter(|window| *window == b"0\r\n\r\n").count() < 5 {
        let mut byte = [0];
        assert_eq!(client.socket.read(&mut byte).unwrap(), 1);
        text.push(byte[0]);
    }
    client.read = text;
    for _ in 0..5 {
        assert_eq!(client.response().unwrap().body, b"<0><1><2>");
    }
    assert_eq!(opened.iter().take(5).count(), 5);
    wait_until("told of each end", || departures(&app) == ["departed Done"; 5]);
}

#[test]
fn what_was_sent_behind_a_stream_is_served_however_much_it_is() {
    let (app, _opened) = pulling(Limits::default(), |open, n| {
        if n < 2 {
            open.give(n.to_string());
        } else {
            open.end();
        }
    });
    let mut client = app.connect();
    // A long head makes hyper read as many bytes at a time, so that more requests than its first
    // buffer holds are read after the head.
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(20 << 10));
    let other = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "y".repeat(900));
    client.send(long + &other.repeat(25) + "GET /plain HTTP/1.1\r\nHost: a\r\n\r\n");
    for n in 0..26 {
        assert_eq!(client.response().unwrap().body, b"01", "the reply to request {n}");
    }
    assert_eq!(client.response().unwrap().body, b"Hello, World!");
}

#[test]
fn nothing_yet_is_asked_again_after_a_while() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = Arc::clone(&asked);
    let (app, _opened) = pulling(Limits::default(), move |open, n| {
        times.lock().unwrap().push(Instant::now());
        match n {
            0..5 => drop(open.give("")),
            5 => drop(open.give("x")),
            _ => open.end(),
        }
    });
    assert_eq!(app.connect().get("/").body, b"x");
    let times = asked.lock().unwrap();
    assert_eq!(times.len(), 7);
    assert!(
        times[..6].windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(9)),
        "{times:?}"
    );
}

/// A time that is shorter than a head waits for the first chunk.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Returns true if `what` is faster than that once in twenty attempts. A single attempt may be slow
/// on a busy machine.
fn is_at_once(mut what: impl FnMut()) -> bool {
    (0..20).any(|_| {
        let since = Instant::now();
        what();
        since.elapsed() < AT_ONCE
    })
}

#[test]
fn the_head_leaves_with_the_first_piece() {
    let (app, opened) = pushing(Limits::default());
    // On a busy machine the time may pass before the chunk is sent.
    let is_in_one_write = (0..20).any(|_| {
        let since = Instant::now();
        let (mut client, open) = ask(&app, &opened, GET);
        std::thread::sleep(Duration::from_millis(200));
        client.socket.set_nonblocking(true).unwrap();
        let read = client.socket.read(&mut [0; 1]);
        let is_none = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(is_none || since.elapsed() >= AT_ONCE, "not before");
        client.socket.set_nonblocking(false).unwrap();
        open.give("first");
        client.fill() && is_none && ends_with(&client.read, "\r\n\r\n5\r\nfirst\r\n")
    });
    assert!(is_in_one_write);
}

#[test]
fn a_head_waits_for_a_second_at_most() {
    let (app, opened) = pushing(Limits::default());
    let since = Instant::now();
    let (mut client, open) = ask(&app, &opened, GET);
    assert!(client.fill());
    assert!(ends_with(&client.read, "\r\n\r\n"));
    assert!(since.elapsed() >= Duration::from_millis(900), "{:?}", since.elapsed());
    open.give("late");
    open.end();
    assert_eq!(client.response().unwrap().body, b"late");
}

#[test]
fn a_head_leaves_when_it_is_told_to_and_at_once_where_that_is_the_rule() {
    let (app, opened) = pushing(Limits::default());
    assert!(is_at_once(|| {
        let (mut client, open) = ask(&app, &opened, GET);
        open.tell(Command::SendHead { stream: open.id });
        assert!(client.fill());
        assert!(ends_with(&client.read, "\r\n\r\n"));
    }));
    let rules = StreamOptions { sends_head_first: true, ..PUSHED };
    let (app, opened) = streaming(Config::default(), rules, ok, Box::new(|_, _| unreachable!()));
    assert!(is_at_once(|| {
        let (mut client, _open) = ask(&app, &opened, GET);
        assert!(client.fill());
        assert!(ends_with(&client.read, "\r\n\r\n"));
    }));
}

#[test]
fn a_length_that_is_not_kept_is_an_error() {
    let (app, opened) = streaming(Config::default(), PUSHED, ten, Box::new(|_, _| unreachable!()));
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("01234");
    read_to(&mut client, "01234");
    assert_eq!(open.give("567890"), ChunkAdmission::ExceedsLength);
    let (bytes, is_fin) = client.read_to_end();
    assert!(ends_with(&bytes, "\r\n\r\n01234") && !is_fin);
    let (mut client, open) = ask(&app, &opened, GET);
    open.give("01234");
    read_to(&mut client, "01234");
    open.end();
    let (bytes, is_fin) = client.read_to_end();
    assert!(ends_with(&bytes, "\r\n\r\n01234") && !is_fin);
    wait_until("both were errors", || departures(&app) == ["departed Error"; 2]);
}

#[test]
fn nothing_is_waited_for_where_the_length_is_none() {
    fn none(exchange: &mut Exchange) {
        ok(exchange);
        exchange.push_response_header(b"Content-Length", b"0").unwrap();
    }
    for rules in [PULLED, PUSHED] {
        let (app, _opened) =
            streaming(Config::default(), rules, none, Box::new(|_, _| unreachable!()));
        let mut client = app.connect();
        assert!(is_at_once(|| {
            let reply = client.get("/");
            assert_eq!((reply.header("content-length"), reply.body.len()), (Some("0"), 0));
        }));
        assert_eq!(client.get("/plain").status, 200);
        app.await_event("departed Done");
    }
}

#[test]
fn a_request_with_both_framings_closes_the_connection() {
    let smuggled = "GET /plain HTTP/1.1\r\nHost: victim\r\n\r\n";
    let body = "1\r\nx\r\n0\r\n\r\n".to_owned() + smuggled;
    let length = format!("Content-Length: {}\r\n", body.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (rules, head) in
        [(PUSHED, ok as fn(&mut Exchange)), (PULLED, ok), (PUSHED, ten), (PULLED, ten)]
    {
        let give = |open: &Open, n| match n {
            0..10 => {
                open.give("x");
            }
            _ => open.end(),
        };
        let (app, opened) = streaming(Config::default(), rules, head, Box::new(give));
        for fields in [length.clone() + chunked, chunked.to_owned() + &length] {
            for (method, path) in [("POST", "/"), ("HEAD", "/"), ("POST", "/plain")] {
                let mut client = app.connect();
                client.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"));
                if path == "/" && !rules.is_pulled {
                    let open = opened.recv_timeout(TEST_TIMEOUT).unwrap();
                    for _ in 0..10 {
                        // The server writes each chunk by itself, and the later ones without hyper
                        // where it may.
                        app.advance(Duration::ZERO);
                        open.give("x");
                    }
                    open.end();
                }
                let (bytes, _) = client.read_to_end();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{method} {path} {text}");
                assert!(text.contains("\r\nConnection: close\r\n"), "{method} {path} {text}");
            }
        }
    }
}

#[test]
fn http_10_reads_until_the_close() {
    let (app, opened) = pushing(Limits::default());
    let (mut client, open) = ask(
        &app,
        &opened,
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\nAccept-Encoding: gzip\r\n\r\n",
    );
    open.give("one");
    open.give("two");
    open.end();
    let (bytes, is_fin) = client.read_to_end();
    let text = String::from_utf8(bytes).unwrap();
    assert!(is_fin && text.ends_with("\r\n\r\nonetwo"), "{text}");
    assert!(
        text.to_lowercase().contains("connection: close")
            && !text.to_lowercase().contains("transfer-encoding")
    );
    app.await_event("departed Done");
}

#[test]
fn a_stream_that_is_the_answer_to_a_head_is_whole() {
    let site = ListenerConfig { sees_heads: true, ..ListenerConfig::default() };
    for (len, is_stream) in [(5 << 20, false), (5 << 20, true)] {
        let app = App::with(
            Config::default(),
            site.clone(),
            Box::new(move |link, event| {
                if let Event::Head(mut exchange) = event {
                    ok(&mut exchange);
                    if !is_stream {
                        exchange.set_response_body(&vec![b'x'; len]);
                        return link.send(Command::Respond(exchange));
                    }
                    let stream = link.stream(PUSHED);
                    exchange.set_response_stream(stream.clone());
                    let id = exchange.id();
                    link.send(Command::Respond(exchange));
                    stream.flow.admit(len);
                    link.send(Command::Chunk {
                        stream: id,
                        payload: Payload::Pooled(vec![b'x'; len]),
                        is_pushing: false,
                    });
                    link.send(Command::EndStream { stream: id });
                    link.flush();
                }
            }),
        );
        let mut client = app.connect();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
        client.send(vec![b'y'; 1000]);
        // The client reads late.
        app.advance(Duration::from_secs(2));
        let body = client.response().unwrap().body;
        assert_eq!(body.len(), len);
        if is_stream {
            app.await_event("departed Done");
        }
    }
}
