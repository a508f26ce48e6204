//! Responses with a body of known length, and static files.

use std::fs;

use rookery_exchange::{Exchange, Share};
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::transport::Transport;
use crate::support::{bytes, echo, gunzip, hello, wait_until};

super::matrix! {
    http1: Http1, https12: Https12, https13: Https13, http2: Http2;
    {
        a_response_to_head_and_some_statuses_have_no_body,
        the_application_decides_headers_and_the_server_framing,
        a_text_is_compressed_on_request,
        static_files_ranges_conditions_and_compression,
        a_client_that_reads_late_gets_the_whole_response,
    }
}

fn a_response_to_head_and_some_statuses_have_no_body(on: Transport) {
    let app = on.app(Limits::default(), |exchange| {
        let path = std::str::from_utf8(exchange.path()).unwrap();
        exchange.begin_response(path[1..].parse().unwrap_or(200));
        exchange.set_response_body(b"Hello, World!");
    });
    let mut client = on.connect(&app);
    for (method, path, status, length, body) in [
        ("HEAD", "/", 200, Some("13"), &b""[..]),
        ("GET", "/204", 204, None, b""),
        ("GET", "/205", 205, Some("0"), b""),
        ("GET", "/", 200, Some("13"), b"Hello, World!"),
    ] {
        let reply = client.request(method, path, &[]);
        assert_eq!(
            (reply.status, reply.header("content-length"), &reply.body[..]),
            (status, length, body),
            "{method} {path}"
        );
    }
    let unchanged = client.get("/304");
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(client.get("/").body, b"Hello, World!");
    assert_eq!(app.listener().connections(), 1);
}

fn the_application_decides_headers_and_the_server_framing(on: Transport) {
    let app = on.app(Limits::default(), |exchange| {
        exchange.begin_response(418);
        for (name, value) in [
            ("Set-Cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("Content-Length", "99999"),
            ("Transfer-Encoding", "chunked"),
            ("X-Custom", "v"),
        ] {
            exchange.push_response_header(name.as_bytes(), value.as_bytes()).unwrap();
        }
        if exchange.path() == b"/close" {
            exchange.push_response_header(b"Connection", b"close").unwrap();
        }
        exchange.set_response_body(b"short");
    });
    let mut client = on.connect(&app);
    let reply = client.get("/");
    assert_eq!((reply.status, &reply.body[..]), (418, &b"short"[..]));
    let values = |name: &str| reply.headers.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(values("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(values("date"), ["Thu, 01 Jan 1970 00:00:00 GMT"]);
    assert_eq!(values("content-length"), ["5"]);
    assert_eq!(values("transfer-encoding"), [""; 0]);
    assert_eq!(values("x-custom"), ["v"]);
    let reply = client.get("/close");
    let closes = if on == Transport::Http2 { None } else { Some("close") };
    assert_eq!((&reply.body[..], reply.header("connection")), (&b"short"[..], closes));
    if on != Transport::Http2 {
        wait_until("it is closed", || app.listener().connections() == 0);
    }
}

/// Returns text of `len` bytes.
fn digits(len: usize) -> Vec<u8> {
    b"0123456789".iter().copied().cycle().take(len).collect()
}

fn a_text_is_compressed_on_request(on: Transport) {
    const GZIP: &[(&str, &str)] = &[("accept-encoding", "gzip")];
    let app = on.app(Limits::default(), |exchange: &mut Exchange| {
        let page = digits(if exchange.path() == b"/large" { 1_000_000 } else { 1000 });
        exchange.begin_response(200);
        exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
        exchange.set_response_body(&page);
    });
    let mut client = on.connect(&app);
    for (path, len) in [("/small", 1000), ("/large", 1_000_000), ("/small", 1000)] {
        let reply = client.request("GET", path, GZIP);
        assert_eq!(reply.header("content-encoding"), Some("gzip"));
        assert_eq!(reply.header("vary"), Some("Accept-Encoding"));
        assert!(reply.body.len() < len / 10, "{}", reply.body.len());
        assert!(gunzip(&reply.body) == digits(len), "{path}");
    }
    assert_eq!(client.get("/small").header("content-encoding"), None);
}

fn static_files_ranges_conditions_and_compression(on: Transport) {
    let folder = tempfile::tempdir().unwrap();
    let (large, text) = (bytes(5_000_000), "compress me ".repeat(20_000));
    for (name, content) in
        [("large.bin", &large[..]), ("small.txt", b"small"), ("text.txt", text.as_bytes())]
    {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let files = StaticFiles::new();
    let path = StaticPath { path: folder.path().into(), ..StaticPath::default() };
    files.set([("/".to_owned(), path)]).unwrap();
    let listener = ListenerConfig { files, ..ListenerConfig::default() };
    let app = on.app_with(Config::default(), listener, echo(hello));
    let mut client = on.connect(&app);
    for _ in 0..2 {
        let small = client.get("/small.txt");
        assert_eq!((small.status, &small.body[..]), (200, &b"small"[..]));
        let etag = small.header("etag").unwrap();
        let unchanged = client.request("GET", "/small.txt", &[("if-none-match", etag)]);
        assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
        let whole = client.get("/large.bin");
        assert_eq!((whole.status, whole.header("content-length")), (200, Some("5000000")));
        assert!(whole.body == large);
        let part = client.request("GET", "/large.bin", &[("range", "bytes=1000000-3999999")]);
        assert!(part.status == 206 && part.body == large[1_000_000..4_000_000]);
        let packed = client.request("GET", "/text.txt", &[("accept-encoding", "gzip")]);
        assert_eq!(packed.header("content-encoding"), Some("gzip"));
        assert!(gunzip(&packed.body) == text.as_bytes());
    }
    let head = client.request("HEAD", "/large.bin", &[]);
    assert_eq!((head.header("content-length"), head.body.len()), (Some("5000000"), 0));
    assert_eq!(client.get("/none.txt").status, 404);
    assert_eq!(app.requests(), 0);
}

fn a_client_that_reads_late_gets_the_whole_response(on: Transport) {
    let page = bytes(20_000_000);
    let sent = page.clone();
    let app = on.app(Limits::default(), move |exchange| {
        exchange.begin_response(200);
        exchange.set_response_body(if exchange.path() == b"/late" { &sent } else { b"now" });
    });
    let mut client = on.connect(&app);
    let pending = client.begin("/late", || app.requests() == 1);
    wait_until("the client is behind", || app.server.budget().used(Share::Outgoing) > 0);
    assert_eq!(on.connect(&app).get("/").body, b"now", "another client is not delayed");
    let reply = client.finish(pending);
    assert!(reply.is_whole && reply.body == page);
}
