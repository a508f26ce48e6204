//! HTTP/2 request heads that are ambiguous or invalid (RFC 9113, 8.1 to 8.3).

use rookery_exchange::Exchange;
use rookery_server::Limits;

use crate::support::hello;
use crate::support::http2::{
    END_HEADERS, END_STREAM, GET, Heard, Peer, block, code, frame, kind, post,
};
use crate::support::tls::app;

/// Responds with the head that the application got.
fn show(exchange: &mut Exchange) {
    let mut text = exchange.path().to_vec();
    for line in exchange.headers() {
        text.extend_from_slice(&[b"|", line.name, b"=", line.value].concat());
    }
    exchange.begin_response(200);
    exchange.set_response_body(&text);
}

/// Returns an ordinary head with additional lines.
fn with<'a>(lines: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [GET, lines].concat()
}

/// Returns an ordinary head in which a field has another value.
fn but<'a>(name: &str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    GET.iter().map(|field| if field.0 == name { (field.0, value) } else { *field }).collect()
}

/// Returns an ordinary head without one of its fields.
fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    GET.iter().copied().filter(|field| field.0 != name).collect()
}

#[test]
fn what_means_two_things_is_refused() {
    const RESET: Heard = Heard::Reset(code::PROTOCOL_ERROR);
    const GOES: Heard = Heard::Goaway(code::PROTOCOL_ERROR);
    const BAD: Heard = Heard::Status(400);
    const FINE: Heard = Heard::Status(200);
    let app = app(Limits::default(), show);
    let rows = [
        (GET.to_vec(), FINE, "an ordinary one"),
        // Names and values of fields.
        (with(&[("X-Upper", "a")]), GOES, "upper case in a name"),
        (with(&[("a b", "a")]), GOES, "a space in a name"),
        (with(&[("a:b", "a")]), GOES, "a colon in a name"),
        (with(&[("a\r\nb", "a")]), GOES, "a line break in a name"),
        (with(&[("", "a")]), GOES, "a name of no length"),
        (with(&[("a", "b\r\nc: d")]), GOES, "a line break in a value"),
        (with(&[("a", "b\nc")]), GOES, "half a line break in a value"),
        (with(&[("a", "b\rc")]), GOES, "the other half in a value"),
        (with(&[("a", "b\0c")]), GOES, "a NUL in a value"),
        (with(&[("a", " b")]), BAD, "a space before a value"),
        (with(&[("a", "b\t")]), BAD, "a tab behind a value"),
        (with(&[("a", "")]), FINE, "an empty value"),
        // Fields that concern only one connection.
        (with(&[("connection", "close")]), RESET, "Connection"),
        (with(&[("transfer-encoding", "chunked")]), RESET, "Transfer-Encoding"),
        (with(&[("upgrade", "websocket")]), RESET, "Upgrade"),
        (with(&[("keep-alive", "timeout=5")]), RESET, "Keep-Alive"),
        (with(&[("proxy-connection", "close")]), RESET, "Proxy-Connection"),
        (with(&[("te", "gzip")]), RESET, "TE"),
        (with(&[("te", "trailers")]), FINE, "TE: trailers"),
        // Lengths of bodies.
        (with(&[("content-length", "5")]), RESET, "a length, and no body"),
        (with(&[("content-length", "0")]), FINE, "no length, and no body"),
        (
            with(&[("content-length", "0"), ("content-length", "0")]),
            BAD,
            "two lengths that are the same",
        ),
        (with(&[("content-length", "0"), ("content-length", "5")]), RESET, "two lengths"),
        // Hosts.
        (with(&[("host", "localhost")]), FINE, "two names of one host"),
        (with(&[("host", "other")]), BAD, "two hosts"),
        (without(":authority"), BAD, "no host"),
        ([&without(":authority")[..], &[("host", "localhost")]].concat(), FINE, "Host alone"),
        ([&without(":authority")[..], &[("host", "a"), ("host", "a")]].concat(), BAD, "two Hosts"),
        (but(":authority", "ada@localhost"), BAD, "a user in the host"),
        (but(":authority", "a b"), RESET, "a space in the host"),
        // Paths.
        (but(":path", "/a b"), RESET, "a space in the path"),
        (but(":path", "/a\u{1}"), RESET, "a control in the path"),
        (but(":path", "a"), RESET, "a path without a slash"),
        (but(":path", ""), RESET, "an empty path"),
        (but(":path", "?x"), BAD, "a query without a path"),
        (but(":path", "*"), BAD, "a star, and not OPTIONS"),
        (
            [&[(":method", "OPTIONS")][..], &but(":path", "*")[1..]].concat(),
            FINE,
            "a star, and OPTIONS",
        ),
        (without(":path"), RESET, "no path"),
        (
            vec![(":method", "GET"), (":scheme", "https"), ("host", "localhost")],
            BAD,
            "neither path nor authority",
        ),
        // Other pseudo-header fields.
        (but(":scheme", "http"), FINE, "another scheme, which nobody asks"),
        (without(":scheme"), RESET, "no scheme"),
        (without(":method"), RESET, "no method"),
        (with(&[(":status", "200")]), RESET, "a status"),
        (with(&[(":unknown", "a")]), RESET, "a pseudo-field that there is not"),
        (with(&[(":path", "/again")]), RESET, "a path twice"),
        ([&[("a", "b")][..], GET].concat(), RESET, "a pseudo-field behind a field"),
        (vec![(":method", "CONNECT"), (":authority", "localhost:1")], BAD, "CONNECT"),
        (with(&[(":protocol", "websocket")]), RESET, ":protocol without CONNECT"),
    ];
    for (fields, expected, what) in rows {
        let mut peer = Peer::new(&app);
        peer.ask(1, &fields);
        let found = peer.outcome(1);
        // h2 may end the stream or the connection where the expectation is only a rejection.
        let is_as_strict = expected == RESET && found == GOES;
        assert!(found == expected || is_as_strict, "{what}: {found:?}, not {expected:?}");
        if !matches!(found, Heard::Goaway(_)) {
            peer.ask(3, GET);
            assert_eq!(peer.outcome(3), FINE, "after {what}");
        }
    }
}

#[test]
fn a_body_has_the_length_that_was_told() {
    let app = app(Limits::default(), show);
    for (told, sent, expected) in [
        ("5", &b"Hello"[..], Heard::Status(200)),
        ("5", b"Hell", Heard::Reset(code::PROTOCOL_ERROR)),
        ("5", b"Hello!", Heard::Reset(code::PROTOCOL_ERROR)),
    ] {
        let mut peer = Peer::new(&app);
        peer.begin(1, &[&post("/")[..], &[("content-length", told)]].concat());
        peer.send(frame(kind::DATA, END_STREAM, 1, sent));
        assert_eq!(peer.outcome(1), expected, "{told} {sent:?}");
        peer.ask(3, GET);
        assert_eq!(peer.outcome(3), Heard::Status(200));
    }
    // The application got only the first four requests.
    assert_eq!(app.requests(), 4);
}

#[test]
fn the_application_sees_a_head_as_over_http_1() {
    let app = app(Limits::default(), show);
    let mut peer = Peer::new(&app);
    let lines = [("cookie", "a=1"), ("x-a", "1"), ("cookie", "b=2"), ("x-a", "2"), ("x_a", "3")];
    peer.ask(1, &with(&lines));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    let two = String::from_utf8(peer.data(1)).unwrap();
    let mut client = app.secure();
    client
        .send("GET / HTTP/1.1\r\nhost: localhost\r\ncookie: a=1; b=2\r\nx-a: 1\r\nx-a: 2\r\nx_a: 3\r\n\r\n");
    let one = String::from_utf8(client.response().unwrap().body).unwrap();
    assert_eq!(two, one);
    assert!(two.contains("|host=localhost") && two.contains("|cookie=a=1; b=2"), "{two}");
}

#[test]
fn trailers_are_read_and_dropped() {
    let app = app(Limits::default(), show);
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    peer.send(frame(kind::DATA, 0, 1, b"Hello"));
    peer.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x-trailer", "a")])));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    assert!(!String::from_utf8(peer.data(1)).unwrap().contains("trailer"));
}

#[test]
fn crumbs_of_cookies_count_as_lines_do() {
    const SAID: u8 = 0xA0;
    let app = app(Limits::default(), show);
    let mut peer = Peer::new(&app);
    // Each line is an entry of the static table, a Cookie without a value. It takes one byte on the
    // wire, and counts as 38 bytes (RFC 9113, 6.5.2).
    for (stream, crumbs, expected) in [
        (1, 300, Heard::Status(200)),
        (3, 900, Heard::Status(431)),
        (5, 15_000, Heard::Goaway(code::ENHANCE_YOUR_CALM)),
    ] {
        let fields = [&block(GET)[..], &vec![SAID; crumbs]].concat();
        peer.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &fields));
        assert_eq!(peer.outcome(stream), expected, "{crumbs}");
    }
    assert_eq!(app.requests(), 1);
    // The server's own limit of lines applies before the lines are joined.
    let app = crate::support::tls::app(Limits { max_headers: 100, ..Limits::default() }, show);
    let mut peer = Peer::new(&app);
    for (stream, crumbs, status) in [(1, 90, 200), (3, 110, 431)] {
        peer.ask(stream, &with(&vec![("cookie", "a=b"); crumbs]));
        assert_eq!(peer.outcome(stream), Heard::Status(status), "{crumbs}");
    }
}

/// A table for this number of names would exceed what `http::HeaderMap` can hold, and it would
/// panic.
#[test]
fn names_without_end() {
    let app = app(Limits::default(), show);
    let names: Vec<String> = (0..40_000).map(|at| format!("x{at}")).collect();
    let lines: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let all = block(&with(&lines));
    let mut peer = Peer::new(&app);
    let mut pieces = all.chunks(16 << 10);
    let mut goes_on = peer.try_send(frame(kind::HEADERS, END_STREAM, 1, pieces.next().unwrap()));
    for piece in pieces {
        goes_on = goes_on && peer.try_send(frame(kind::CONTINUATION, 0, 1, piece));
    }
    assert_eq!(peer.outcome(1), Heard::Goaway(code::ENHANCE_YOUR_CALM));
    assert_eq!(app.secure().get("/").status, 200);
    assert_eq!(app.requests(), 1);
}

#[test]
fn only_a_query_may_contain_characters_that_should_be_encoded() {
    const RESET: Heard = Heard::Reset(code::PROTOCOL_ERROR);
    let app = app(Limits::default(), show);
    let mut peer = Peer::new(&app);
    let mut stream = 1;
    for char in (0..=0x7F).map(char::from).filter(|char| !"#?".contains(*char)) {
        let (path, query) = (format!("/a{char}b"), format!("/a?\"{char}b"));
        for (target, is_refused) in [
            (&path, char <= ' ' || "<>`\x7F".contains(char)),
            (&query, char <= ' ' || char == '\x7F'),
        ] {
            peer.ask(stream, &but(":path", target));
            let expected = if is_refused { RESET } else { Heard::Status(200) };
            assert_eq!(peer.outcome(stream), expected, "{target:?}");
            stream += 2;
        }
    }
}

#[test]
fn what_a_target_says_of_a_fragment_is_dropped_as_over_http_1() {
    let app = app(Limits::default(), show);
    let mut peer = Peer::new(&app);
    peer.ask(1, &but(":path", "/a#b"));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    let two = String::from_utf8(peer.data(1)).unwrap();
    let one = String::from_utf8(app.secure().get("/a#b").body).unwrap();
    assert!(two.starts_with("/a|") && one.starts_with("/a|"), "{two} {one}");
}

#[test]
fn the_scheme_is_the_connections_whatever_a_peer_says() {
    let app = app(Limits::default(), |exchange| {
        let is_https = exchange.is_https();
        exchange.begin_response(200);
        exchange.set_response_body(if is_https { b"https" } else { b"http" });
    });
    let mut peer = Peer::new(&app);
    peer.ask(1, &[&but(":scheme", "http")[..], &[("x-forwarded-proto", "http")]].concat());
    assert_eq!(peer.outcome(1), Heard::Status(200));
    assert_eq!(peer.data(1), b"https");
}

#[test]
fn a_large_head_may_come_in_frames_of_any_size() {
    for (limit, value) in [(64 << 10, 60_000), (256 << 10, 200_000), (1 << 20, 900_000)] {
        let limits = Limits {
            http2_max_header_list_size: limit,
            max_header_size: limit,
            max_headers: 1000,
            ..Limits::default()
        };
        let app = app(limits, hello);
        let fields = block(&[GET, &[("x-large", "1".repeat(value).as_str())]].concat());
        for sizes in [[9000, 9000], [8193, 8193], [1, 16_384], [16_384, 16_384]] {
            let (first, mut rest) = fields.split_at(10);
            let mut frames = frame(kind::HEADERS, END_STREAM, 1, first);
            for size in sizes.into_iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(size));
                rest = behind;
                let flags = if rest.is_empty() { END_HEADERS } else { 0 };
                frames.extend(frame(kind::CONTINUATION, flags, 1, piece));
                if rest.is_empty() {
                    break;
                }
            }
            let mut peer = Peer::new(&app);
            peer.send(&frames);
            assert_eq!(peer.outcome(1), Heard::Status(200), "{value} bytes in frames of {sizes:?}");
        }
    }
}
