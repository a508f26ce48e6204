//! `Strict-Transport-Security` is in each response over TLS to a host name, and in no other
//! response.

use std::fs;

use rookery_exchange::Exchange;
use rookery_server::static_files::{Overrides, StaticFiles, StaticPath};
use rookery_server::tls::{Hsts, TlsSettings};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::http2::{Two, to};
use crate::support::tls::{settings, site};
use crate::support::{App, Client, Response, echo};

const HEADER: &str = "strict-transport-security";

fn own(exchange: &mut Exchange) {
    let says_itself = exchange.path() == b"/own";
    exchange.begin_response(200);
    if says_itself {
        exchange.push_response_header(b"Strict-Transport-Security", b"max-age=7").unwrap();
    }
    exchange.set_response_body(b"a");
}

fn app_with(hsts: Option<Hsts>, files: StaticFiles) -> App {
    let site = ListenerConfig { files, ..site(TlsSettings { hsts, ..settings(&["localhost"]) }) };
    let limits = Limits { max_body_size: 1000, ..Limits::default() };
    App::with(Config { limits, ..Config::default() }, site, echo(own))
}

const MINUTE: Hsts = Hsts { max_age: 60, include_subdomains: false, preload: false };

/// Returns the header of a response, which must occur at most once.
fn told(reply: &Response) -> Option<String> {
    let all: Vec<_> = reply
        .head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| name.eq_ignore_ascii_case(HEADER))
        .map(|(_, value)| value.trim().to_owned())
        .collect();
    assert!(all.len() <= 1, "{}", reply.head);
    all.first().cloned()
}

#[test]
fn replies_of_the_application_and_files_say_it_over_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file.txt"), "file").unwrap();
    let files = || {
        let files = StaticFiles::new();
        let path = StaticPath { path: dir.path().into(), overrides: Overrides::default() };
        files.set([("/files".to_owned(), path)]).unwrap();
        files
    };
    let all = Hsts { max_age: 31_536_000, include_subdomains: true, preload: true };
    for (hsts, expected) in [
        (None, None),
        (Some(MINUTE), Some("max-age=60")),
        (Some(Hsts { max_age: 0, include_subdomains: false, preload: false }), Some("max-age=0")),
        (Some(all), Some("max-age=31536000; includeSubDomains; preload")),
    ] {
        let app = app_with(hsts, files());
        for path in ["/", "/files/file.txt", "/files/file.txt", "/files/none", "/own"] {
            let expected = if path == "/own" { Some("max-age=7") } else { expected };
            let one = app.secure().get(path);
            assert_eq!(told(&one).as_deref(), expected, "{path}: {}", one.head);
            let two = Two::new(&app).get(path);
            assert_eq!(two.headers.get_all(HEADER).iter().count(), usize::from(expected.is_some()));
            assert_eq!(two.header(HEADER), expected, "{path}");
        }
    }
}

#[test]
fn refusals_say_it() {
    let app = app_with(Some(MINUTE), StaticFiles::new());
    let refused = |request: &str| {
        let mut client = app.secure();
        client.send(request);
        client.response().unwrap()
    };
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n", 413),
        ("CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        // The head cannot be parsed, so that the host is known only from TLS.
        ("NONSENSE\r\n\r\n", 400),
    ] {
        let reply = refused(request);
        assert_eq!(
            (reply.status, told(&reply).as_deref()),
            (status, Some("max-age=60")),
            "{request}"
        );
    }
    let large = to("POST", "/", &[("content-length", "5000")]).body(vec![0; 5000]).unwrap();
    let two = Two::new(&app).request(large).unwrap();
    assert_eq!((two.status, two.header(HEADER)), (413, Some("max-age=60")));
}

#[test]
fn addresses_and_requests_in_the_clear_hear_nothing() {
    let app = app_with(Some(MINUTE), StaticFiles::new());
    for host in ["127.0.0.1", "127.0.0.1:8443", "[::1]:8443"] {
        let mut client = app.secure();
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let reply = client.response().unwrap();
        assert_eq!((reply.status, told(&reply)), (200, None), "{host}");
    }
    let mut plain = Client::connect(app.address);
    plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = plain.response().unwrap();
    assert_eq!((reply.status, told(&reply)), (400, None));
}
