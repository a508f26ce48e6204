//! Tests of how connections end, and that each end is reported once.

use std::io::Write as _;
use std::time::Instant;

use rookery_test_support::{TEST_TIMEOUT, wait_until};
use rookery_websocket::protocol::OpCode;
use rookery_websocket_client::{STOP_TIMEOUT, SendOutcome, Settings};

use crate::messages::echo;
use crate::support::{Bench, Peer, SHORT, client_frame, close_frame, drain, frame};

#[test]
fn the_servers_close_code_and_reason_are_reported() {
    for (bytes, wanted) in [
        (close_frame(4001, "äöü, bye"), (4001, "äöü, bye", true)),
        (close_frame(1000, ""), (1000, "", true)),
        (frame(OpCode::Close, b""), (1005, "", true)),
    ] {
        let peer = Peer::upgraded(move |mut socket| {
            socket.write_all(&bytes).unwrap();
            // The server closes the connection, because clients leave this to the server (RFC 6455,
            // 7.1.1).
            (client_frame(&mut socket).unwrap(), bytes)
        });
        let mut bench = Bench::new();
        bench.opened(&peer.url(), Settings::default());
        let (code, reason, is_clean) = bench.closed();
        assert_eq!((code, reason.as_str(), is_clean), wanted);
        let ((opcode, answer), sent) = peer.end();
        // The close frame has the same code, without the reason (RFC 6455, 5.5.1).
        assert_eq!(opcode, 0x88);
        assert_eq!(answer, sent[2..sent.len().min(4)]);
    }
}

#[test]
fn an_end_without_a_close_frame_is_not_clean() {
    let peer = Peer::upgraded(drop);
    let mut bench = Bench::new();
    let client = bench.opened(&peer.url(), Settings::default());
    let (code, reason, is_clean) = bench.closed();
    assert_eq!((code, is_clean), (1006, false));
    assert!(!reason.is_empty());
    assert_eq!(bench.send(client, "x"), SendOutcome::Closed);
    assert!(bench.clients.has_no_events());
    peer.end();
}

#[test]
fn a_protocol_violation_is_reported_to_the_server() {
    let table: [(&[u8], u16, &str); 4] = [
        (&[0x81, 0x81, 0, 0, 0, 0, b'x'], 1002, "wrong masking"),
        (&[0xC1, 0x00], 1002, "reserved bits set"),
        (&[0x81, 0x01, 0xFF], 1007, "text is not UTF-8"),
        (&[0x80, 0x00], 1002, "continuation frame without a message"),
    ];
    for (bytes, code, reason) in table {
        let peer = Peer::upgraded(move |mut socket| {
            socket.write_all(bytes).unwrap();
            let told = client_frame(&mut socket);
            drain(&mut socket);
            told
        });
        let mut bench = Bench::new();
        bench.opened(&peer.url(), Settings::default());
        assert_eq!(bench.closed(), (code, reason.to_owned(), false));
        assert_eq!(peer.end(), Some((0x88, code.to_be_bytes().to_vec())), "{reason}");
    }
}

#[test]
fn a_server_that_ignores_a_close_is_dropped_in_time() {
    // One server reads and sends nothing; the other does not even read.
    let listens = Peer::upgraded(|mut socket| drain(&mut socket));
    let deaf = Peer::upgraded(|socket| {
        std::thread::sleep(4 * SHORT);
        drop(socket);
    });
    for (url, is_full) in [(listens.url(), false), (deaf.url(), true)] {
        let mut bench = Bench::new();
        let client = bench.opened(&url, Settings { close_timeout: SHORT, ..Settings::default() });
        if is_full {
            while bench.send(client, &"x".repeat(1 << 20)) == SendOutcome::Queued {}
        }
        let began = Instant::now();
        bench.clients.close(client, 1000, "");
        let closed = bench.closed();
        assert_eq!(
            closed,
            (1006, "the server did not respond to the close frame".to_owned(), false)
        );
        assert!(began.elapsed() >= SHORT && began.elapsed() < TEST_TIMEOUT);
    }
    listens.end();
    deaf.end();
}

#[test]
fn a_silent_server_is_detected() {
    let peer = Peer::upgraded(|mut socket| {
        let ping = client_frame(&mut socket).unwrap();
        drain(&mut socket);
        ping
    });
    let mut bench = Bench::new();
    bench.opened(
        &peer.url(),
        Settings { ping_interval: Some(SHORT), pong_timeout: SHORT, ..Settings::default() },
    );
    assert_eq!(
        bench.closed(),
        (1006, "the server did not respond to a ping in time".to_owned(), false)
    );
    assert_eq!(peer.end().0, 0x89);
}

#[test]
fn an_abandoned_client_is_closed_and_sends_no_events() {
    let peer = Peer::upgraded(|mut socket| {
        let _ = socket.write_all(&frame(OpCode::Text, b"unread"));
        let told = client_frame(&mut socket);
        drain(&mut socket);
        told
    });
    let mut bench = Bench::new();
    let client =
        bench.opened(&peer.url(), Settings { close_timeout: SHORT, ..Settings::default() });
    bench.clients.abandon(client);
    assert_eq!(peer.end(), Some((0x88, 1001_u16.to_be_bytes().to_vec())));
    assert_eq!(bench.clients.next_event(0), None);
    // The same applies while a client connects.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client =
        bench.open(&format!("ws://{}/", silent.local_addr().unwrap()), Settings::default());
    bench.clients.abandon(client);
    let (mut taken, _) = silent.accept().unwrap();
    taken.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    drain(&mut taken);
    assert_eq!(bench.clients.next_event(0), None);
}

#[test]
fn a_client_that_is_closed_before_the_application_sees_it_open_never_opens() {
    let (_server, _listener, url) = echo();
    let mut bench = Bench::new();
    let client = bench.open(&url, Settings::default());
    wait_until("the client is open", || bench.clients.has_events(0));
    bench.clients.close(client, 1000, "");
    assert_eq!(bench.failed(), ("the client was closed before it was open".to_owned(), None));
    assert_eq!(bench.clients.next_event(0), None);
}

#[test]
fn stop_ends_all_clients_soon() {
    let (_server, _listener, url) = echo();
    let deaf = Peer::upgraded(|socket| {
        std::thread::sleep(2 * STOP_TIMEOUT);
        drop(socket);
    });
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bench = Bench::new();
    let polite = bench.opened(&url, Settings::default());
    let stuck = bench.opened(&deaf.url(), Settings::default());
    while bench.send(stuck, &"x".repeat(1 << 20)) == SendOutcome::Queued {}
    bench.open(&format!("ws://{}/", silent.local_addr().unwrap()), Settings::default());
    bench.clients.stop();
    let mut ends: Vec<(u64, String)> = (0..3)
        .map(|_| {
            let event = bench.clients.next_event(0).expect("its end is there");
            let text = format!("{event:?}");
            (event.client(), text.split_whitespace().next().unwrap().to_owned())
        })
        .collect();
    ends.sort();
    assert_eq!(
        ends.iter().map(|(_, kind)| kind.as_str()).collect::<Vec<_>>(),
        ["Closed", "Closed", "Failed"]
    );
    assert_eq!(bench.clients.next_event(0), None);
    assert_eq!(bench.send(polite, "late"), SendOutcome::Closed);
    // The clients can be used again.
    let again = bench.opened(&url, Settings::default());
    bench.send(again, "again");
    bench.message();
    deaf.end();
}
