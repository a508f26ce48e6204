//! Tests with servers that fail to open a WebSocket in various ways.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use rookery_test_support::TEST_TIMEOUT;
use rookery_websocket_client::{Address, Clients, Event, OpenError, Roots, Settings};

use crate::support::{Bench, Peer, SHORT, drain, head, header, response};

/// Returns the error of a client whose request receives this response.
fn answered(answer: impl FnOnce(&str) -> Vec<u8> + Send + 'static) -> (String, Option<u16>) {
    let peer = Peer::new(|mut socket: TcpStream| {
        let head = head(&mut socket);
        // The write fails if the client has seen enough and has disconnected.
        let _ = socket.write_all(&answer(&head));
        drain(&mut socket);
    });
    let mut bench = Bench::new();
    bench.open(&peer.url(), Settings::default());
    let failed = bench.failed();
    peer.end();
    failed
}

fn fixed(text: &str) -> (String, Option<u16>) {
    let text = text.to_owned();
    answered(move |_| text.into_bytes())
}

#[test]
fn the_status_of_a_rejected_handshake_is_reported() {
    for status in [400, 401, 403, 404, 500, 503, 200] {
        let (message, told) = fixed(&format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(told, Some(status));
        assert_eq!(message, format!("the server responded to the handshake with status {status}"));
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let (message, status) =
        fixed("HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status, Some(302));
    assert!(message.ends_with("status 302; redirects are not followed"), "{message}");
}

#[test]
fn an_invalid_handshake_response_is_rejected() {
    type Answer = fn(&str) -> Vec<u8>;
    let table: [(&str, Answer); 5] = [
        ("Sec-WebSocket-Accept does not match the key", |_| {
            response("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "")
        }),
        ("a subprotocol that was not requested", |head| {
            response(head, "Sec-WebSocket-Protocol: chat\r\n")
        }),
        ("not offered", |head| response(head, "Sec-WebSocket-Extensions: permessage-deflate\r\n")),
        ("did not upgrade", |_| b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec()),
        ("malformed head", |_| b"\x16\x03\x01 no HTTP at all \r\n\r\n".to_vec()),
    ];
    for (wanted, answer) in table {
        let (message, status) = answered(answer);
        assert!(message.contains(wanted), "{message}: not {wanted}");
        assert_eq!(status, None);
    }
}

#[test]
fn the_size_of_a_head_is_limited() {
    let (message, _) = answered(|_| {
        let mut head = b"HTTP/1.1 101 Switching Protocols\r\nX: ".to_vec();
        head.resize(70 << 10, b'x');
        head
    });
    assert!(message.contains("head of more than 64 KiB"), "{message}");
    let (message, _) = fixed(&format!("HTTP/1.1 101 Go\r\n{}\r\n", "X: y\r\n".repeat(101)));
    assert!(message.contains("more than 100 header fields"), "{message}");
}

#[test]
fn a_disconnecting_or_missing_server_is_reported() {
    let peer = Peer::new(|mut socket: TcpStream| drop(head(&mut socket)));
    let mut bench = Bench::new();
    bench.open(&peer.url(), Settings::default());
    let (message, _) = bench.failed();
    assert!(message.contains("closed the connection") || message.contains("reset"), "{message}");
    peer.end();
    // The port of TCPMUX (RFC 1078, historic), on which no server listens. A port that was free a
    // moment ago might be in use by now.
    bench.open("ws://127.0.0.1:1/", Settings::default());
    let (message, _) = bench.failed();
    assert!(message.contains(": Connection refused"), "{message}");
}

#[test]
fn connecting_to_a_server_that_never_responds_times_out() {
    let settings = Settings { connect_timeout: SHORT, ..Settings::default() };
    // The servers do not accept, do not respond, or send only a part of a head.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let half = Peer::new(|mut socket: TcpStream| {
        head(&mut socket);
        socket.write_all(b"HTTP/1.1 101 Switching").unwrap();
        drain(&mut socket);
    });
    let mut bench = Bench::new();
    for url in [format!("ws://{}/", silent.local_addr().unwrap()), half.url()] {
        let began = Instant::now();
        bench.open(&url, settings.clone());
        let (message, status) = bench.failed();
        assert!(message.ends_with("did not respond within 0.3 s"), "{message}");
        assert_eq!(status, None);
        assert!(began.elapsed() >= SHORT && began.elapsed() < TEST_TIMEOUT);
    }
    half.end();
}

#[test]
fn closing_cancels_connecting() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bench = Bench::new();
    let client =
        bench.open(&format!("ws://{}/", silent.local_addr().unwrap()), Settings::default());
    bench.clients.close(client, 1000, "");
    assert_eq!(bench.failed().0, "the client was closed before it was open");
}

#[test]
fn the_request_contains_the_settings() {
    let peer = Peer::new(|mut socket: TcpStream| {
        let head = head(&mut socket);
        socket.write_all(&response(&head, "Sec-WebSocket-Protocol: two\r\n")).unwrap();
        head
    });
    let mut bench = Bench::new();
    let settings = Settings {
        subprotocols: vec!["one".to_owned(), "two".to_owned()],
        headers: vec![("Authorization".to_owned(), "Bearer x".to_owned())],
        ..Settings::default()
    };
    let url = format!("{}path?query=1", peer.url());
    bench.open(&url, settings);
    assert!(
        matches!(bench.next(), Event::Opened { protocol: Some(chosen), .. } if chosen == "two")
    );
    let head = peer.end();
    assert!(head.starts_with("GET /path?query=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        header(&head, "host"),
        url.strip_prefix("ws://").and_then(|rest| rest.split('/').next())
    );
    assert_eq!(header(&head, "sec-websocket-protocol"), Some("one, two"));
    assert_eq!(header(&head, "authorization"), Some("Bearer x"));
}

#[test]
fn a_request_that_cannot_be_written_is_an_error_at_once() {
    let header = |name: &str, value: &str| Settings {
        headers: vec![(name.to_owned(), value.to_owned())],
        ..Settings::default()
    };
    let subprotocols = |names: &[&str]| Settings {
        subprotocols: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Settings::default()
    };
    let table = [
        (
            header("X", "y\r\nHost: other"),
            "the value of the header X has characters that HTTP does not allow",
        ),
        (header("X Y", "z"), "the header name \"X Y\" has characters that HTTP does not allow"),
        (header("Sec-WebSocket-Key", "x"), "the header Sec-WebSocket-Key is sent by the handshake"),
        (header("Content-Length", "5"), "the header Content-Length is sent by the handshake"),
        (header("Sec-WebSocket-Protocol", "chat"), "use the setting for subprotocols"),
        (subprotocols(&["a b"]), "the subprotocol \"a b\""),
        (subprotocols(&["chat", "chat"]), "the subprotocol \"chat\" occurs twice"),
    ];
    let mut clients = Clients::new(Box::new(|_| ()));
    for (settings, wanted) in table {
        // The name is not looked up, so it need not exist.
        let address = Address::parse("ws://nowhere.invalid/").unwrap();
        let error = clients.open(address, settings, &Roots::System).unwrap_err();
        assert!(matches!(error, OpenError::Request(_)));
        assert!(error.to_string().contains(wanted), "{error}: not {wanted}");
    }
    assert!(clients.next_event(0).is_none());
}
