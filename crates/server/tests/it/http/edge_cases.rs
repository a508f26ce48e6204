//! Edge cases of HTTP that a strict server and an ordinary client may meet, over HTTP/1.1 and
//! HTTP/2.

use std::time::Duration;

use rookery_exchange::Exchange;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use crate::support::http2::{
    END_HEADERS, END_STREAM, GET, Heard, Peer, block, code, frame, kind, ordinary, post,
};
use crate::support::tls::app;
use crate::support::{App, TEST_TIMEOUT, echo, hello, in_own_process};

/// Responds with the number of lines of certain headers that the application sees, and the size of
/// the body.
fn count(exchange: &mut Exchange) {
    let lines = |name: &[u8]| exchange.headers().filter(|header| header.name == name).count();
    // The application sees lines with the same name as one header.
    let many =
        exchange.header(b"x-many").map_or(0, |value| value.split(|byte| *byte == b',').count());
    let text = format!(
        "lengths {} many {} body {}",
        lines(b"content-length"),
        many,
        exchange.body().len()
    );
    exchange.begin_response(200);
    exchange.set_response_body(text.as_bytes());
}

#[test]
fn a_target_without_a_path_is_refused() {
    let app = app(Limits::default(), hello);
    for (method, target) in [("GET", "?x"), ("POST", "?"), ("GET", "*")] {
        let mut peer = Peer::new(&app);
        peer.ask(1, &ordinary(method, target));
        assert_eq!(peer.outcome(1), Heard::Status(400), "{method} {target}");
        let mut client = app.secure();
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.response().unwrap().status, 400, "{method} {target}");
    }
    assert_eq!(app.requests(), 0);
}

#[test]
fn trailers_with_pseudo_header_fields_are_malformed() {
    const MALFORMED: Heard = Heard::Reset(code::PROTOCOL_ERROR);
    let app = app(Limits::default(), count);
    let rows: [(&[(&str, &str)], Heard); 6] = [
        (&[("x-sum", "1")], Heard::Status(200)),
        (&[], Heard::Status(200)),
        (&[(":path", "/other")], MALFORMED),
        (&[(":status", "200")], MALFORMED),
        (&[(":method", "GET"), ("x-sum", "1")], MALFORMED),
        (&[("x-sum", "1"), (":path", "/other")], MALFORMED),
    ];
    for (fields, expected) in rows {
        let fields = block(fields);
        let half = fields.len() / 2;
        let padded = [&[3][..], &fields, b"..."].concat();
        for (how, frames) in [
            ("one frame", frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &fields)),
            ("padded", frame(kind::HEADERS, END_HEADERS | END_STREAM | 8, 1, &padded)),
            (
                "two frames",
                [
                    frame(kind::HEADERS, END_STREAM, 1, &fields[..half]),
                    frame(kind::CONTINUATION, END_HEADERS, 1, &fields[half..]),
                ]
                .concat(),
            ),
        ] {
            let before = app.requests();
            let mut peer = Peer::new(&app);
            peer.begin(1, &post("/"));
            peer.send(frame(kind::DATA, 0, 1, b"Hello"));
            peer.send(frames);
            assert_eq!(peer.outcome(1), expected, "{how} {fields:?}");
            // The connection continues.
            peer.ask(3, GET);
            assert_eq!(peer.outcome(3), Heard::Status(200), "{how} {fields:?}");
            let served = 1 + usize::from(expected == Heard::Status(200));
            assert_eq!(app.requests() - before, served, "{how} {fields:?}");
        }
    }
    // Over HTTP/1.1 a name with a colon is invalid.
    let mut client = app.secure();
    let before = app.requests();
    client.send("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("5\r\nHello\r\n0\r\n:path: /other\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 400);
    assert_eq!(app.requests(), before);
}

#[test]
fn a_head_within_its_limits_may_come_in_frames_of_a_byte() {
    let app = app(Limits::default(), count);
    let lines = vec![("x-many", "1"); 400];
    let fields = block(&[GET, &lines].concat());
    for size in [1, 7, 100, 3000] {
        let mut peer = Peer::new(&app);
        let mut pieces = fields.chunks(size).peekable();
        let first = frame(kind::HEADERS, END_STREAM, 1, pieces.next().unwrap());
        let mut all = first;
        while let Some(piece) = pieces.next() {
            let end = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            all.extend(frame(kind::CONTINUATION, end, 1, piece));
        }
        // The head is sent in parts that do not match the frames.
        for part in all.chunks(777) {
            peer.send(part);
        }
        assert_eq!(peer.outcome(1), Heard::Status(200), "{size}");
        assert_eq!(peer.data(1), b"lengths 0 many 400 body 0");
        peer.ask(3, GET);
        assert_eq!(peer.outcome(3), Heard::Status(200), "{size}");
    }
}

#[test]
fn a_head_past_its_limits_is_refused_in_frames_of_a_byte_as_well() {
    let app = app(Limits::default(), count);
    let lines = vec![("x-many", "1"); 1000];
    let fields = block(&[GET, &lines].concat());
    let mut peer = Peer::new(&app);
    peer.send(frame(kind::HEADERS, END_STREAM, 1, &fields[..1]));
    for piece in fields[1..].chunks(1) {
        peer.send(frame(kind::CONTINUATION, 0, 1, piece));
    }
    peer.send(frame(kind::CONTINUATION, END_HEADERS, 1, b""));
    assert_eq!(peer.outcome(1), Heard::Status(431));
    assert_eq!(app.requests(), 0);
}

#[test]
fn continuation_without_end_is_refused_whatever_its_frames_carry() {
    if !in_own_process!() {
        return;
    }
    let app = app(Limits::default(), hello);
    for payload in
        [vec![], vec![0x82], block(&[("a", "b")]), block(&[("x-many", &"1".repeat(9000))])]
    {
        let len = payload.len();
        let goodbye = crate::http2::attacks::beside(&app, move |mut peer| {
            peer.send(frame(kind::HEADERS, END_STREAM, 1, &block(GET)));
            let many = frame(kind::CONTINUATION, 0, 1, &payload).repeat(1 + 4000 / (len + 9));
            for _ in 0..400 {
                if !peer.try_send(&many) {
                    break;
                }
            }
            peer.goodbye()
        });
        // A pseudo-header field after an ordinary field resets the stream, and what follows
        // violates the protocol.
        assert!(
            matches!(goodbye, Some(code::ENHANCE_YOUR_CALM | code::PROTOCOL_ERROR)),
            "{len} bytes: {goodbye:?}"
        );
    }
    assert!(app.server.reports().count(Rejection::Http2) >= 4);
}

#[test]
fn upgrade_is_ignored_in_http_1_0() {
    let app = App::new(Limits::default(), count);
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    for (version, status) in [("1.0", 200), ("1.1", 101)] {
        let mut client = app.connect();
        client.send(format!("GET /ws HTTP/{version}\r\nHost: a\r\n{upgrade}\r\n"));
        assert_eq!(client.response().unwrap().status, status, "HTTP/{version}");
    }
}

#[test]
fn equal_lengths_are_one_over_http_1_and_refused_over_http_2() {
    let app = app(Limits::default(), count);
    for (lengths, status) in [
        ("Content-Length: 4\r\nContent-Length: 4\r\n", 200),
        ("Content-Length: 4\r\nX: y\r\nContent-Length: 04\r\n", 200),
        ("Content-Length: 4\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 4, 4\r\n", 400),
        ("Content-Length: 4\r\nContent-Length: 4, 4\r\n", 400),
        ("Content-Length: 4\r\nContent-Length:\r\n", 400),
        ("Content-Length: 4\r\nContent-Length: +4\r\n", 400),
    ] {
        let mut client = app.secure();
        client.send(format!("POST / HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\nabcd"));
        let reply = client.response().unwrap();
        assert_eq!(reply.status, status, "{lengths}");
        if status == 200 {
            assert_eq!(reply.body, b"lengths 1 many 0 body 4", "{lengths}");
            assert_eq!(client.get("/").status, 200, "the connection goes on");
        } else {
            assert!(client.wait_for_close(), "{lengths}");
        }
    }
    let mut peer = Peer::new(&app);
    peer.begin(1, &[&post("/")[..], &[("content-length", "4"), ("content-length", "4")]].concat());
    peer.send(frame(kind::DATA, END_STREAM, 1, b"abcd"));
    assert_eq!(peer.outcome(1), Heard::Status(400));
}

#[test]
fn half_a_head_behind_a_request_has_the_time_of_a_head() {
    let limits = Limits {
        header_timeout: Duration::from_secs(3),
        idle_timeout: 10 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = App::new(limits, hello);
    for first in [
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab",
    ] {
        let mut client = app.connect();
        client.send(format!("{first}GET /b HTTP/1.1\r\nHost: a\r\nX: "));
        assert_eq!(client.response().unwrap().status, 200);
        app.advance(2 * limits.header_timeout);
        assert_eq!(client.response().unwrap().status, 408);
        assert!(client.wait_for_close());
    }
    assert_eq!(app.requests(), 2);
    // A head that arrives in time is answered, and the idle timeout is a separate one.
    let mut client = app.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHo");
    assert_eq!(client.response().unwrap().status, 200);
    client.send("st: a\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 200);
    app.advance(Duration::from_secs(5));
    assert_eq!(client.get("/c").status, 200);
}

#[test]
fn a_413_has_one_name() {
    let reply = |exchange: &mut Exchange| {
        exchange.begin_response(413);
        exchange.set_response_body(b"of the application");
    };
    let app = App::new(Limits { max_body_size: 10, ..Limits::default() }, reply);
    for (length, body) in [(11, &b"413 Content Too Large\n"[..]), (1, b"of the application")] {
        let mut client = app.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\na"));
        let reply = client.response().unwrap();
        assert_eq!(reply.head.lines().next(), Some("HTTP/1.1 413 Content Too Large"));
        assert_eq!(reply.body, body);
    }
}

#[test]
fn a_request_with_both_framings_is_the_last_one_on_every_path() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("small"), "small").unwrap();
    let files = StaticFiles::new();
    let path = StaticPath { path: dir.path().into(), overrides: Overrides::default() };
    files.set([("/s".to_owned(), path)]).unwrap();
    let limits = Limits { max_body_size: 100, ..Limits::default() };
    let app = App::with(
        Config { limits, ..Config::default() },
        ListenerConfig { files, ..ListenerConfig::default() },
        echo(hello),
    );
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: victim\r\n\r\n";
    let body = "0\r\n\r\n".to_owned() + smuggled;
    let long = "99\r\n".to_owned() + &"x".repeat(0x99) + "\r\n" + &body;
    let length = format!("Content-Length: {}\r\n", body.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let keep_alive = "Connection: keep-alive\r\n";
    for fields in [length.clone() + chunked, chunked.to_owned() + &length] {
        for (line, more, body, expected) in [
            ("POST / HTTP/1.1", "", &body, 200),
            ("POST / HTTP/1.1", keep_alive, &body, 200),
            ("POST / HTTP/1.1", "Host: b\r\n", &body, 400),
            ("POST / HTTP/1.1", "", &long, 413),
            ("GET / HTTP/1.1", upgrade, &body, 200),
            // Static paths refuse requests with a body.
            ("GET /s/small HTTP/1.1", "", &body, 400),
            ("POST / HTTP/1.0", keep_alive, &body, 400),
        ] {
            let mut client = app.connect();
            client.send(format!("{line}\r\nHost: a\r\n{more}{fields}\r\n{body}"));
            assert_eq!(client.response().unwrap().status, expected, "{line} {more}");
            assert!(client.wait_for_close(), "{line} {more}");
        }
    }
    let log = app.log.lock().unwrap();
    assert!(!log.iter().any(|line| line.contains("smuggled")), "{log:?}");
}
