//! Heads that are rejected, and headers that decide whether a static file or the application
//! responds.

use rookery_exchange::Exchange;
use rookery_server::static_files::{
    Overrides, RequiredHeader, StaticFiles, StaticPath, Validation,
};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::{App, echo, hello};

#[test]
fn a_host_that_is_none_is_refused() {
    let app = App::new(Limits::default(), hello);
    #[rustfmt::skip]
    let refused = [
        "a b/<c>", "a b", "a/b", "a,b c", "<a>", "a@b", "a\\b", "a:b", "a:80:80", "[::1", "::1]", "[::1]x",
        "[::1]:x", "%", "%4", "%zz", "[]", "a\"", "a#b", "a?b", "\u{e9}.example", "[a/b]", "[::1 ]",
    ];
    for host in refused {
        let mut client = app.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let reply = client.response().expect("an answer");
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{host:?}");
        assert!(client.wait_for_close(), "{host:?}");
    }
    assert_eq!(app.requests(), 0);
    #[rustfmt::skip]
    let fine = [
        "", "a", "a:80", "a:", "a.example.:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]", "[v1.x:y]",
        "under_score", "a~b", "%C3%A9.example", "xn--9ca.example", "a!$&'()*+,;=b", "[fe80::1%25lo]:1",
    ];
    let mut client = app.connect();
    for host in fine {
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().expect("an answer").status, 200, "{host:?}");
    }
}

#[test]
fn a_target_of_an_authority_alone_is_refused() {
    let app = App::new(Limits::default(), hello);
    for target in ["host:80", "host", "127.0.0.1:8000"] {
        for method in ["GET", "OPTIONS", "POST"] {
            let mut client = app.connect();
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
            let reply = client.response().expect("an answer");
            assert_eq!(
                (reply.status, reply.header("connection")),
                (400, Some("close")),
                "{method} {target}"
            );
        }
    }
    assert_eq!(app.requests(), 0);
    let mut client = app.connect();
    for target in ["*", "http://host:80/", "/host:80"] {
        client.send(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.response().expect("an answer").status, 200, "{target}");
    }
}

/// Responds with the path and the Host that the application sees.
fn path_and_hosts(exchange: &mut Exchange) {
    let mut seen = exchange.path().to_vec();
    for header in exchange.headers().filter(|header| header.name == b"host") {
        seen.extend_from_slice(b" host=");
        seen.extend_from_slice(header.value);
    }
    exchange.begin_response(200);
    exchange.set_response_body(&seen);
}

#[test]
fn the_host_of_an_absolute_target_is_the_host() {
    let app = App::new(Limits::default(), path_and_hosts);
    let mut client = app.connect();
    for (line, host, seen) in [
        (
            "GET http://a.example:81/x HTTP/1.1",
            "Host: b\r\n",
            "http://a.example:81/x host=a.example:81",
        ),
        ("GET http://a/ HTTP/1.1", "Host: a\r\n", "http://a/ host=a"),
        ("GET http://[::1]:8/ HTTP/1.1", "Host: b\r\n", "http://[::1]:8/ host=[::1]:8"),
        ("GET http://a/ HTTP/1.0", "Connection: keep-alive\r\n", "http://a/ host=a"),
        ("GET /http://a/ HTTP/1.1", "Host: b\r\n", "/http://a/ host=b"),
    ] {
        client.send(format!("{line}\r\n{host}\r\n"));
        assert_eq!(String::from_utf8(client.response().unwrap().body).unwrap(), seen, "{line}");
    }
    // A request with an absolute target still needs the Host header that RFC 9112 requires, and the
    // authority must be a host as well.
    for (target, host) in [
        ("http://a/", ""),
        ("http://a/", "Host: a\r\nHost: a\r\n"),
        ("http://a/", "Host: b b\r\n"),
        ("http://user@a/", "Host: a\r\n"),
        ("http://user:secret@a/", "Host: a\r\n"),
        ("http://a:b/", "Host: a\r\n"),
        ("http://:80/", "Host: a\r\n"),
        ("http:///", "Host: a\r\n"),
    ] {
        let mut client = app.connect();
        client.send(format!("GET {target} HTTP/1.1\r\n{host}\r\n"));
        let reply = client.response().expect("an answer");
        assert_eq!(
            (reply.status, reply.header("connection")),
            (400, Some("close")),
            "{target} {host:?}"
        );
        assert!(client.wait_for_close(), "{target} {host:?}");
    }
}

#[test]
fn a_query_with_a_space_or_a_control_character_is_refused() {
    let app = App::new(Limits::default(), hello);
    for byte in (0..=b' ').chain([0x7F, 0x80, 0xFF]) {
        for query in [&[byte, b'y'][..], &[b'"', byte, b'y']] {
            let mut client = app.connect();
            client.send([b"GET /?x=", query, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
            assert_eq!(client.response().expect("an answer").status, 400, "{byte:#x}");
        }
    }
    assert_eq!(app.requests(), 0);
}

#[test]
fn a_path_with_an_angle_bracket_or_a_backtick_is_refused() {
    let app = App::new(Limits::default(), path_and_hosts);
    for byte in (b'!'..=b'~').filter(|byte| !b"#?".contains(byte)) {
        let path = format!("/a{}b", char::from(byte));
        let mut client = app.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let reply = client.response().expect("an answer");
        let is_refused = b"<>`".contains(&byte);
        assert_eq!(reply.status, if is_refused { 400 } else { 200 }, "{path}");
        assert!(is_refused || reply.text().starts_with(&path), "{path}");
    }
}

#[test]
fn a_static_files_rule_sees_the_host_of_an_absolute_target() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "from the file").unwrap();
    let files = StaticFiles::new();
    let required = RequiredHeader::new("Host", b"inner").unwrap();
    let own = Overrides { validation: Some(Validation::Require(required)), ..Overrides::default() };
    files
        .set([("/".to_owned(), StaticPath { path: folder.path().into(), overrides: own })])
        .unwrap();
    let app = App::with(
        Config::default(),
        ListenerConfig { files, ..ListenerConfig::default() },
        echo(hello),
    );
    for (line, host, status) in [
        ("GET /a.txt", "inner", 200),
        ("GET http://inner/a.txt", "outer", 200),
        ("GET http://outer/a.txt", "inner", 403),
    ] {
        let mut client = app.connect();
        client.send(format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().unwrap().status, status, "{line}");
    }
}

#[test]
fn transfer_codings_other_than_chunked_once_are_refused() {
    let app = App::new(Limits::default(), hello);
    for (lines, status) in [
        // The sections of RFC 9112 are 6.1 for 501 (a coding that is not understood), 6.1 (chunked
        // twice), 6.3 (chunked not last) and 7.1 (parameters).
        (&["chunked"][..], 200),
        (&["Chunked"], 200),
        (&[" , chunked"], 200),
        (&["gzip, chunked"], 501),
        (&["gzip", "chunked"], 501),
        (&["identity, chunked"], 501),
        (&["gzip;q=\"a,b\", chunked"], 501),
        (&["chunked, chunked"], 400),
        (&["chunked,chunked"], 400),
        (&["chunked", "chunked"], 400),
        (&["chunked", "Chunked"], 400),
        (&["chunked, gzip, chunked"], 400),
        (&["chunked, gzip"], 400),
        (&["chunked", "gzip"], 400),
        (&["chunked;a=b, chunked"], 400),
        (&["chunked;a=b"], 400),
        (&["gzip"], 400),
        (&["identity"], 400),
        (&[""], 400),
        (&["chunked", ""], 400),
        (&["xchunked"], 400),
        (&["\u{a0}chunked"], 400),
    ] {
        for also in ["", "Content-Length: 5\r\n"] {
            let fields =
                format!("Transfer-Encoding: {}\r\n", lines.join("\r\nTransfer-Encoding: "));
            let before = app.requests();
            let mut client = app.connect();
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\n{fields}{also}\r\n5\r\nHello\r\n0\r\n\r\n"
            ));
            let reply = client.response().expect("an answer");
            assert_eq!(reply.status, status, "{lines:?} {also}");
            assert_eq!(app.requests() - before, usize::from(status == 200), "{lines:?} {also}");
            if status != 200 {
                assert_eq!(reply.header("connection"), Some("close"), "{lines:?}");
                assert!(client.wait_for_close(), "{lines:?}");
            }
        }
    }
    // HTTP/1.0 has no transfer codings.
    let mut client = app.connect();
    client.send("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.response().unwrap().status, 400);
}

#[test]
fn only_a_websocket_bypasses_static_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "from the file").unwrap();
    let files = StaticFiles::new();
    files
        .set([(
            "/ws".to_owned(),
            StaticPath { path: folder.path().into(), ..StaticPath::default() },
        )])
        .unwrap();
    let site = ListenerConfig { files, ..ListenerConfig::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let mut client = app.connect();
    for upgrade in ["h2c", "foo", "websocket", "TLS/1.0"] {
        client.send(format!(
            "GET /ws/a.txt HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        ));
        assert_eq!(client.response().unwrap().body, b"from the file", "{upgrade}");
    }
    assert_eq!(app.requests(), 0);
    // Requests that open a WebSocket go to the application.
    assert_eq!(client.upgrade("/ws").status, 101);
}

#[test]
fn head_tells_a_length_only_where_there_is_one() {
    let app = App::new(Limits::default(), |exchange: &mut Exchange| {
        exchange.begin_response(200);
        match exchange.path() {
            b"/none" => {}
            b"/told" | b"/removed" | b"/image" => {
                exchange.push_response_header(b"Content-Length", b"7").unwrap();
                let kind = if exchange.path() == b"/image" { "image/png" } else { "text/html" };
                exchange.push_response_header(b"Content-Type", kind.as_bytes()).unwrap();
                exchange.push_response_header(b"ETag", b"\"a\"").unwrap();
                if exchange.path() == b"/removed" {
                    exchange.set_response_body(b"");
                }
            }
            b"/zero" => {
                exchange.push_response_header(b"Content-Length", b"0").unwrap();
                exchange.set_response_body(b"");
            }
            b"/empty" => exchange.set_response_body(b""),
            _ => exchange.set_response_body(b"Hello, World!"),
        }
    });
    let mut client = app.connect();
    for encoding in ["", "Accept-Encoding: gzip\r\n"] {
        // GET would send a text compressed, with a length that is unknown without the body.
        let is_gzip = !encoding.is_empty();
        for (path, length) in [
            ("/none", None),
            ("/told", Some("7").filter(|_| !is_gzip)),
            ("/removed", Some("7").filter(|_| !is_gzip)),
            ("/image", Some("7")),
            ("/zero", Some("0")),
            // The application may have removed the body.
            ("/empty", None),
        ] {
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n{encoding}\r\n"));
            let reply = client.response_to("HEAD").unwrap();
            assert_eq!(reply.header("content-length"), length, "{path}");
            assert_eq!(reply.header("transfer-encoding"), None, "{path}");
            let is_marked = is_gzip && matches!(path, "/told" | "/removed");
            let (encoding, tag) =
                if is_marked { (Some("gzip"), "W/\"a\"") } else { (None, "\"a\"") };
            assert_eq!(reply.header("content-encoding"), encoding, "{path}");
            assert_eq!(reply.header("vary").is_some(), is_marked, "{path}");
            assert!(reply.header("etag").is_none_or(|found| found == tag), "{path}");
        }
        let get = {
            client.send(format!("GET /whole HTTP/1.1\r\nHost: a\r\n{encoding}\r\n"));
            client.response().unwrap()
        };
        client.send(format!("HEAD /whole HTTP/1.1\r\nHost: a\r\n{encoding}\r\n"));
        let head = client.response_to("HEAD").unwrap();
        assert_eq!(head.header("content-length"), Some(&*get.body.len().to_string()));
        assert_eq!(head.header("content-encoding"), get.header("content-encoding"));
    }
    // A response to GET without a body needs a Content-Length of 0, because a client that keeps the
    // connection would wait for the body.
    assert_eq!(client.get("/none").header("content-length"), Some("0"));
}
