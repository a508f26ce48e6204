//! Listeners whose connections begin with a PROXY protocol header.

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rookery_exchange::Exchange;
use rookery_server::{Config, Limits, ListenerConfig, Notice, Rejection, TrustedProxies};
use rookery_test_support::client::tls_session;
use rookery_test_support::tls::client_config;
use rustls::ClientConnection;

use crate::support::tls::{settings, site};
use crate::support::{App, Client, TEST_TIMEOUT, echo, wait_until};

const LINE: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 12345 443\r\n";

/// Responds with the client's address, the local address and the scheme.
fn whose(exchange: &mut Exchange) {
    let end =
        |end: Option<std::net::SocketAddr>| end.map_or_else(String::new, |end| end.to_string());
    let text =
        format!("{} {} {}", end(exchange.remote()), end(exchange.local()), exchange.is_https());
    exchange.begin_response(200);
    exchange.set_response_body(text.as_bytes());
}

fn app_with(limits: Limits, site: ListenerConfig) -> App {
    App::with(
        Config { limits, ..Config::default() },
        ListenerConfig { proxy_protocol: Some(TrustedProxies::default()), ..site },
        echo(whose),
    )
}

fn app() -> App {
    app_with(Limits::default(), ListenerConfig::default())
}

fn body(client: &mut Client) -> String {
    String::from_utf8(client.response().expect("a reply").body).unwrap()
}

/// Returns a version 2 header for the client 192.0.2.7:12345 of 198.51.100.1:443.
fn binary(command: u8) -> Vec<u8> {
    let ends = [192, 0, 2, 7, 198, 51, 100, 1, 0x30, 0x39, 1, 0xBB];
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, 0x11, 0, 12], &ends].concat()
}

#[test]
fn a_proxy_names_the_client() {
    let app = app();
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for header in [LINE.as_bytes().to_vec(), binary(0x21)] {
        // The header is sent with the request in the same segment, or is split at any byte.
        for at in 0..=header.len() {
            let mut client = app.connect();
            let all = [&header[..], get.as_bytes()].concat();
            if at > 0 {
                client.send(&all[..at]);
                std::thread::sleep(Duration::from_millis(10));
            }
            client.send(&all[at..]);
            assert_eq!(body(&mut client), "192.0.2.7:12345 198.51.100.1:443 false", "cut at {at}");
            // The header applies to all requests of the connection.
            client.send(get);
            assert_eq!(body(&mut client), "192.0.2.7:12345 198.51.100.1:443 false");
        }
    }
}

#[test]
fn a_proxy_that_speaks_for_itself_is_the_client() {
    let app = app();
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), binary(0x20)] {
        let mut client = app.connect();
        let own = client.socket.local_addr().unwrap();
        client.send([&header[..], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        assert_eq!(body(&mut client), format!("{own} {} false", app.address));
    }
}

#[test]
fn the_header_comes_before_tls() {
    let app = app_with(Limits::default(), site(settings(&["localhost"])));
    let mut client = app.connect();
    client.send(binary(0x21));
    let mut tls: Box<ClientConnection> =
        Box::new(tls_session(&Arc::new(client_config(None)), "localhost"));
    while tls.is_handshaking() {
        tls.complete_io(&mut client.socket).unwrap();
    }
    client.tls = Some(tls);
    assert_eq!(client.get("/").body, b"192.0.2.7:12345 198.51.100.1:443 true");
}

#[test]
fn without_a_header_there_is_no_answer() {
    let app = app();
    // The header is missing, invalid, a line that does not end in time, or a longer header of
    // version 2 than is accepted.
    let wrong = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        b"PROXY TCP4 nobody\r\n".to_vec(),
        b"\r\n\r\n\0\r\nQUIX".to_vec(),
        [&b"PROXY UNKNOWN "[..], &[b'x'; 100]].concat(),
        [&binary(0x21)[..14], &[0xFF, 0xFF]].concat(),
        binary(0x22),
    ];
    for wrong in &wrong {
        let mut client = app.connect();
        client.send(wrong);
        assert!(client.wait_for_close(), "{wrong:?}");
    }
    wait_until("it is reported", || {
        app.server.reports().count(Rejection::Proxy) == wrong.len() as u64
    });
    assert_eq!(app.requests(), 0);
}

static NOTICES: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn the_reason_why_a_connection_is_closed_is_said_once() {
    let notice = Notice(|line| NOTICES.lock().unwrap().push(line.to_owned()));
    for (senders, sent, reason) in [
        ("192.0.2.9", LINE, "`proxy_protocol_from` does not list this address"),
        ("127.0.0.1", "GET / HTTP/1.1\r\n\r\n", "it did not begin with a PROXY protocol header"),
    ] {
        let proxy_protocol = Some(TrustedProxies::parse([senders]).unwrap());
        let site = ListenerConfig { proxy_protocol, notice, ..ListenerConfig::default() };
        let app = App::with(Config::default(), site, echo(whose));
        for _ in 0..3 {
            let mut client = app.connect();
            client.send(sent);
            assert!(client.wait_for_close());
        }
        let said = std::mem::take(&mut *NOTICES.lock().unwrap());
        let wanted = format!("a connection from 127.0.0.1 was closed, because {reason}");
        assert!(said.len() == 1 && said[0].starts_with(&wanted), "{said:?}");
    }
}

#[test]
fn a_header_has_the_time_of_a_handshake_and_an_end_in_it_is_the_end() {
    let limits = Limits { tls_handshake_timeout: Duration::from_millis(400), ..Limits::default() };
    let app = app_with(limits, ListenerConfig::default());
    let began = Instant::now();
    let mut slow = app.connect();
    slow.send(&LINE[..20]);
    assert!(slow.wait_for_close());
    assert!(began.elapsed() > Duration::from_millis(390));
    wait_until("it has gone", || app.listener().connections() == 0);
    // The timeout is far longer than the test waits.
    let limits = Limits { tls_handshake_timeout: 10 * TEST_TIMEOUT, ..Limits::default() };
    let app = app_with(limits, ListenerConfig::default());
    let mut gone = app.connect();
    gone.send(&LINE[..20]);
    gone.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(gone.wait_for_close());
    wait_until("it has gone", || app.listener().connections() == 0);
}

fn list(proxy: &str) -> TrustedProxies {
    TrustedProxies::parse([proxy]).unwrap()
}

#[test]
fn only_load_balancers_that_are_named_may_send_one() {
    let of = |senders| {
        // The list of trusted proxies is another one.
        let site = ListenerConfig {
            proxies: list("127.0.0.0/8"),
            proxy_protocol: Some(senders),
            ..ListenerConfig::default()
        };
        App::with(Config::default(), site, echo(whose))
    };
    let refusing = of(list("192.0.2.1"));
    let mut client = refusing.connect();
    client.send(LINE);
    assert!(client.wait_for_close());
    for senders in [TrustedProxies::default(), list("127.0.0.0/8")] {
        let taking = of(senders);
        let mut client = taking.connect();
        client.send(format!("{LINE}GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(body(&mut client), "192.0.2.7:12345 198.51.100.1:443 false");
    }
}

#[test]
fn forwarding_headers_are_used_by_the_list_of_trusted_proxies() {
    let headers = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 9.9.9.9, 203.0.113.5\r\n";
    for (trusted, expected) in [
        // The load balancer only passes on what its clients send.
        (TrustedProxies::default(), "192.0.2.7:12345 198.51.100.1:443 false"),
        (list("198.51.100.0/24"), "192.0.2.7:12345 198.51.100.1:443 false"),
        // The load balancer sets the scheme, and names the client in its PROXY header.
        (list("127.0.0.1"), "192.0.2.7:12345 198.51.100.1:443 true"),
        // The client of the load balancer is a trusted proxy.
        (list("192.0.2.7"), "203.0.113.5:0 198.51.100.1:443 true"),
    ] {
        let site = ListenerConfig {
            proxies: trusted,
            proxy_protocol: Some(list("127.0.0.1")),
            ..ListenerConfig::default()
        };
        let app = App::with(Config::default(), site, echo(whose));
        let mut client = app.connect();
        for start in [LINE, ""] {
            client.send(format!("{start}GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
            assert_eq!(body(&mut client), expected);
        }
    }
}

#[test]
fn curl_speaks_version_1() {
    let app = app();
    let mut command = Command::new("curl");
    command.args(["-sS", "--haproxy-protocol", &format!("http://{}/", app.address)]);
    let Ok(output) = command.output() else { return println!("NOT TESTED: there is no curl") };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.starts_with("127.0.0.1:") && said.ends_with(&format!("{} false", app.address)),
        "{output:?}"
    );
}
