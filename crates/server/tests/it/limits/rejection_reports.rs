//! Each rejection is thrown once to the error hook of its request, with the request's id.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rookery_error::{Delivery, Kind, Reports};
use rookery_exchange::Share;
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use crate::support::http2::{
    END_HEADERS, END_STREAM, GET, Heard, PREFACE, Peer, block, frame, kind, setting,
};
use crate::support::tls::{settings, site};
use crate::support::{App, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// The way in which a client is notified of a rejection.
#[derive(Debug)]
enum Told {
    Status(u16),
    CloseCode(u16),
    /// By a TLS alert (RFC 8446, 6), and a close.
    Alert,
    /// By a close.
    Closed,
    /// Over HTTP/2, with a status or by a close.
    Over2(Option<u16>),
    /// Not at all, because the client does not read.
    Dropped,
}

use Told::{Alert, CloseCode, Closed, Dropped, Over2, Status};

/// Returns the limits, and the bytes by which a client causes each rejection. Bytes that concern a
/// WebSocket are sent after its handshake. A rejection without a row is a compile error, because
/// the length of the array is the number of rejections.
#[allow(clippy::too_many_lines, reason = "a table with a row for each rejection")]
fn rows() -> [(Rejection, Limits, Vec<u8>, Told); <Rejection as Kind>::COUNT] {
    let usual = Limits::default;
    let soon = Duration::from_secs(20);
    let get = |fields: &str| format!("GET / HTTP/1.1\r\n{fields}\r\n").into_bytes();
    let post = |fields: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}").into_bytes()
    };
    let hello = || post("Content-Length: 11\r\n", "Hello there");
    let other = [&GET[..3], &[(":authority", "other.example")]].concat();
    let over_two = |flags: u8, fields: &[(&str, &str)]| {
        [
            PREFACE,
            &frame(kind::SETTINGS, 0, 0, &setting(1, 0)),
            &frame(kind::HEADERS, flags, 1, &block(fields)),
        ]
        .concat()
    };
    let two = over_two(END_HEADERS | END_STREAM, &other);
    let tunnel = [&[(":method", "CONNECT"), (":protocol", "connect-udp")], &GET[1..]].concat();
    let (large, message) = (vec![7; 20_000_000], masked_frame(0x82, &vec![7; 100_000]));
    [
        (Rejection::Unreadable, usual(), b"nonsense\r\n\r\n".to_vec(), Status(400)),
        (Rejection::Host, usual(), get(""), Status(400)),
        (
            Rejection::Target,
            usual(),
            b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".to_vec(),
            Status(400),
        ),
        (
            Rejection::BodyUnreadable,
            usual(),
            post("Transfer-Encoding: chunked\r\n", "zz\r\n"),
            Status(400),
        ),
        (
            Rejection::TransferCoding,
            usual(),
            post("Transfer-Encoding: gzip, chunked\r\n", ""),
            Status(501),
        ),
        (
            Rejection::HeadTimeout,
            Limits { header_timeout: soon, ..usual() },
            b"GET / HTTP".to_vec(),
            Status(408),
        ),
        (Rejection::BodyTooLarge, Limits { max_body_size: 10, ..usual() }, hello(), Status(413)),
        (
            Rejection::HeadTooLarge,
            Limits { max_header_size: 16 << 10, ..usual() },
            get(&format!("Host: a\r\nX: {}\r\n", "a".repeat(40_000))),
            Status(431),
        ),
        (
            Rejection::Application,
            usual(),
            b"GET /fails HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            Status(500),
        ),
        (Rejection::Busy, usual(), hello(), Status(503)),
        (
            Rejection::DiskFull,
            Limits { body_buffer_size: 10, disk_reserve: u64::MAX, disk_share: 1, ..usual() },
            hello(),
            Status(507),
        ),
        (
            Rejection::RequestTimeout,
            Limits { request_timeout: soon, ..usual() },
            b"GET /sleeps HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
            Status(504),
        ),
        (
            Rejection::Unread,
            Limits { ws_stall_timeout: soon, ..usual() },
            masked_frame(0x82, &large),
            Dropped,
        ),
        (
            Rejection::BodyTimeout,
            Limits { idle_timeout: soon, ..usual() },
            post("Content-Length: 11\r\n", "Hello"),
            Status(408),
        ),
        (
            Rejection::MessageTimeout,
            Limits { ws_min_rate: 100_000, ws_stall_timeout: soon, ..usual() },
            message[..1000].to_vec(),
            CloseCode(1008),
        ),
        (
            Rejection::Silent,
            Limits { ws_ping_interval: soon, ws_ping_timeout: soon, ..usual() },
            Vec::new(),
            Dropped,
        ),
        (
            Rejection::Origin,
            usual(),
            get("Host: a\r\nOrigin: https://b\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"),
            Status(403),
        ),
        (Rejection::ForeignHost, usual(), get("Host: b\r\n"), Status(403)),
        (
            Rejection::Overload,
            Limits { max_client_memory: Some(1 << 20), ..usual() },
            post("Content-Length: 500000\r\n", &"a".repeat(400_000)),
            Status(503),
        ),
        // A handshake record with a message of an unknown type.
        (Rejection::Handshake, usual(), vec![22, 3, 1, 0, 4, 99, 0, 0, 0], Alert),
        (Rejection::PlainOnTls, usual(), get("Host: a\r\n"), Status(400)),
        (Rejection::Proxy, usual(), get("Host: a\r\n"), Closed),
        (Rejection::Http2, usual(), get("Host: a\r\n"), Over2(None)),
        (Rejection::Misdirected, usual(), two, Over2(Some(421))),
        (Rejection::Protocol, usual(), over_two(END_HEADERS, &tunnel), Over2(Some(501))),
        (Rejection::Elsewhere, usual(), get("Host: a\r\n"), Status(421)),
        (Rejection::TlsOnPlain, usual(), vec![22, 3, 1, 0, 4, 1, 0, 0, 0], Closed),
        // These connections are rejected before the server reads.
        (
            Rejection::TooManyConnections,
            Limits { max_connections: 0, ..usual() },
            Vec::new(),
            Status(503),
        ),
        (
            Rejection::TooManyFromIp,
            Limits { max_connections_per_ip: 0, ..usual() },
            Vec::new(),
            Status(503),
        ),
    ]
}

#[test]
fn every_rejection_reaches_its_requests_hook_once() {
    let mut shown = [false; <Rejection as Kind>::COUNT];
    let mut last = 0;
    for (rejection, limits, sent, told) in rows() {
        assert!(
            !std::mem::replace(&mut shown[rejection.index()], true),
            "{rejection:?} has two rows"
        );
        // The queue has no capacity in the row about the full queue.
        let requests = if rejection == Rejection::Busy { 0 } else { 100 };
        let queue =
            rookery_exchange::QueueLimits { max_queued_requests: requests, ..Default::default() };
        let has_tls = matches!(rejection, Rejection::Handshake | Rejection::PlainOnTls);
        let app = App::with(
            Config { limits, queue, ..Config::default() },
            if has_tls {
                site(settings(&["localhost"]))
            } else if matches!(told, Over2(_)) {
                site(settings(&["localhost", "other"]))
            } else {
                ListenerConfig {
                    proxy_protocol: (rejection == Rejection::Proxy)
                        .then(rookery_server::TrustedProxies::default),
                    origins: Some(rookery_server::OriginPolicy::SameHost),
                    hosts: Some(["a".to_owned()].into()),
                    redirect: (rejection == Rejection::Elsewhere).then(|| {
                        let tls = site(settings(&["localhost"])).tls.unwrap();
                        std::sync::Arc::new(rookery_server::Redirect { tls, port: 443 })
                    }),
                    ..ListenerConfig::default()
                }
            },
            echo(|exchange| {
                if exchange.path() == b"/fails" {
                    exchange.begin_response(500);
                    exchange.response_mut().set_failure();
                } else {
                    if exchange.path() == b"/sleeps" {
                        wait_until("its time is over", || exchange.is_client_disconnected());
                    }
                    hello(exchange);
                }
            }),
        );
        let reports = app.server.reports();
        reports.set_delivery(Delivery::Queue);
        let mut client = app.connect();
        if let Over2(status) = told {
            drop(client);
            let mut peer = Peer::silent(app.address);
            peer.send(&sent);
            match status {
                None => assert_eq!(peer.goodbye(), None),
                Some(status) => assert_eq!(peer.outcome(1), Heard::Status(status)),
            }
            is_reported(reports, rejection, &mut last);
            continue;
        }
        if matches!(told, CloseCode(_) | Dropped) {
            assert_eq!(client.upgrade("/ws").status, 101);
        }
        // The server may reject the bytes while they are being written.
        let _ = client.socket.write_all(&sent);
        if rejection == Rejection::Unread {
            wait_until("the client is behind", || app.server.budget().used(Share::Outgoing) > 0);
        }
        let is_by_time = matches!(
            rejection,
            Rejection::HeadTimeout
                | Rejection::BodyTimeout
                | Rejection::RequestTimeout
                | Rejection::MessageTimeout
                | Rejection::Silent
        );
        if is_by_time {
            client.wait_until_server_has_read();
        }
        if is_by_time || rejection == Rejection::Unread {
            wait_until("the time is over", || {
                app.advance(Duration::from_secs(5));
                reports.count(rejection) > 0
            });
        }
        match told {
            Status(status) => {
                assert_eq!(client.response().unwrap().status, status, "{rejection:?}");
            }
            CloseCode(code) => {
                assert_eq!(client.frame_after_pings().1[..2], code.to_be_bytes(), "{rejection:?}");
            }
            Alert => {
                assert!(
                    client.fill() && client.read.starts_with(&[21, 3, 3, 0, 2, 2]),
                    "{:?}",
                    client.read
                );
            }
            Closed => assert!(client.wait_for_close(), "{rejection:?}"),
            Dropped => drop(app.await_event("closed 1006")),
            Over2(_) => {}
        }
        is_reported(reports, rejection, &mut last);
    }
}

/// Waits for the only report, whose id must be greater than the last one.
fn is_reported(reports: &Reports<Rejection>, rejection: Rejection, last: &mut u64) {
    let until = Instant::now() + TEST_TIMEOUT;
    // A rejection is counted shortly before its report is queued.
    let report = loop {
        if let Some(report) = reports.take() {
            break report;
        }
        assert!(Instant::now() < until, "{rejection:?} is not reported");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(report.error.downcast_ref(), Some(&rejection));
    assert!(report.request > *last, "ids grow");
    *last = report.request;
    assert!(reports.take().is_none(), "{rejection:?}: once");
    assert_eq!(reports.count(rejection), 1);
}

#[test]
fn under_load_each_request_keeps_its_own_id_and_no_hook_is_counted() {
    // In debug builds the server itself asserts that the reference count of each hook stays two.
    let app = App::new(Limits::default(), |exchange| {
        let id = exchange.id();
        exchange.begin_response(500);
        exchange.response_mut().set_failure();
        exchange.set_response_body(id.to_string().as_bytes());
    });
    app.server.reports().set_delivery(Delivery::Queue);
    let mut answered = Vec::new();
    let mut reported = Vec::new();
    let mut clients: Vec<_> = (0..50).map(|_| app.connect()).collect();
    for _ in 0..40 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            let body = client.response().unwrap().body;
            answered.push(String::from_utf8(body).unwrap().parse::<u64>().unwrap());
        }
        while let Some(report) = app.server.reports().take() {
            reported.push(report.request);
        }
    }
    answered.sort_unstable();
    reported.sort_unstable();
    assert_eq!(answered.len(), 2000);
    assert_eq!(answered, reported);
}
