//! Heads that are refused, and headers whose reading decides who answers.

use rookery_exchange::Exchange;
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::{Config, Limits, Site};

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
        let reply = client.reply().expect("an answer");
        assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{host:?}");
        assert!(client.is_closed(), "{host:?}");
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
        assert_eq!(client.reply().expect("an answer").status, 200, "{host:?}");
    }
}

#[test]
fn a_target_of_an_authority_alone_is_refused() {
    let app = App::new(Limits::default(), hello);
    for target in ["host:80", "host", "127.0.0.1:8000"] {
        for method in ["GET", "OPTIONS", "POST"] {
            let mut client = app.connect();
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"));
            let reply = client.reply().expect("an answer");
            assert_eq!((reply.status, reply.header("connection")), (400, Some("close")), "{method} {target}");
        }
    }
    assert_eq!(app.requests(), 0);
    let mut client = app.connect();
    for target in ["*", "http://host:80/", "/host:80"] {
        client.send(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.reply().expect("an answer").status, 200, "{target}");
    }
}

#[test]
fn only_a_websocket_bypasses_static_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "from the file").unwrap();
    let files = StaticFiles::new();
    files
        .set([("/ws".to_owned(), StaticPath { path: folder.path().into(), ..StaticPath::default() })])
        .unwrap();
    let site = Site { files, ..Site::default() };
    let app = App::with(Config::default(), site, echo(hello));
    let mut client = app.connect();
    for upgrade in ["h2c", "foo", "websocket", "TLS/1.0"] {
        client.send(format!(
            "GET /ws/a.txt HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        ));
        assert_eq!(client.reply().unwrap().body, b"from the file", "{upgrade}");
    }
    assert_eq!(app.requests(), 0);
    // What opens a WebSocket is the application's.
    assert_eq!(client.upgrade(b"").status, 101);
}

#[test]
fn head_tells_a_length_only_where_there_is_one() {
    let app = App::new(Limits::default(), |exchange: &mut Exchange| {
        exchange.begin_reply(200);
        match exchange.path() {
            b"/none" => {}
            b"/told" => exchange.push_reply_header(b"Content-Length", b"7").unwrap(),
            b"/empty" => exchange.set_reply_body(b""),
            _ => exchange.set_reply_body(b"Hello, World!"),
        }
    });
    let mut client = app.connect();
    for encoding in ["", "Accept-Encoding: gzip\r\n"] {
        for (path, length) in
            [("/none", None), ("/told", Some("7")), ("/empty", Some("0")), ("/whole", Some("13"))]
        {
            client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n{encoding}\r\n"));
            let reply = client.reply_to("HEAD").unwrap();
            assert_eq!(reply.header("content-length"), length, "{path}");
            assert_eq!(reply.header("transfer-encoding"), None, "{path}");
        }
    }
    // GET without a body tells that it is empty: a client that keeps the connection would wait for it.
    assert_eq!(client.get("/none").header("content-length"), Some("0"));
}
