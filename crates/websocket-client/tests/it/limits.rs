//! Tests that exceed each limit.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rookery_test_support::TEST_TIMEOUT;
use rookery_websocket::protocol::OpCode;
use rookery_websocket_client::{
    Address, Clients, Content, MAX_CLIENTS, OpenError, READ_AHEAD, Roots, SendOutcome, Settings,
};

use crate::messages::echo;
use crate::support::{Bench, Peer, SHORT, client_frame, drain, frame};

#[test]
fn the_size_of_a_message_is_limited() {
    let peer = Peer::upgraded(|mut socket| {
        socket.write_all(&frame(OpCode::Binary, &[1; 1000])).unwrap();
        socket.write_all(&frame(OpCode::Binary, &[2; 1001])).unwrap();
        let told = client_frame(&mut socket);
        drain(&mut socket);
        told
    });
    let mut bench = Bench::new();
    bench.opened(&peer.url(), Settings { max_message_size: 1000, ..Settings::default() });
    assert_eq!(bench.message(), Content::Binary(vec![1; 1000]));
    assert_eq!(bench.closed(), (1009, "message too big".to_owned(), false));
    assert_eq!(peer.end(), Some((0x88, 1009_u16.to_be_bytes().to_vec())));
}

#[test]
fn the_size_of_an_inflated_message_is_limited() {
    let (_server, _listener, url) = echo();
    let mut bench = Bench::new();
    let settings = Settings { max_message_size: 10_000, compresses: true, ..Settings::default() };
    let client = bench.opened(&url, settings);
    bench.send(client, &"x".repeat(10_000));
    assert_eq!(bench.message().as_bytes().len(), 10_000);
    bench.send(client, &"x".repeat(10_001));
    assert_eq!(bench.closed().0, 1009);
}

#[test]
fn the_send_queue_is_limited_but_accepts_one_message_of_any_size() {
    let peer = Peer::upgraded(|mut socket| {
        std::thread::sleep(SHORT);
        let mut messages = 0;
        while let Some((0x82, _)) = client_frame(&mut socket) {
            messages += 1;
        }
        messages
    });
    let queue = 100_000;
    let mut bench = Bench::new();
    let client =
        bench.opened(&peer.url(), Settings { max_queue_size: queue, ..Settings::default() });
    // The message is larger than the queue and the system's buffers, and the server does not read.
    assert_eq!(bench.clients.send(client, Content::Binary(vec![0; 20 << 20])), SendOutcome::Queued);
    assert_eq!(bench.clients.send(client, Content::Binary(Vec::new())), SendOutcome::Full);
    bench.sent(client);
    let mut taken = 1;
    while bench.clients.send(client, Content::Binary(vec![0; 10_000])) == SendOutcome::Queued {
        taken += 1;
        assert!(bench.clients.queued_bytes(client) <= queue);
    }
    bench.sent(client);
    bench.clients.close(client, 1000, "");
    // The refused message has not been sent.
    assert_eq!(peer.end(), taken);
}

#[test]
fn reading_stops_while_the_application_takes_nothing() {
    // More than the system's buffers and the read-ahead.
    const MESSAGES: usize = 1000;
    const SIZE: usize = 64 << 10;
    let written = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&written);
    let peer = Peer::upgraded(move |mut socket| {
        let message = frame(OpCode::Binary, &vec![7; SIZE]);
        for _ in 0..MESSAGES {
            socket.write_all(&message).unwrap();
            theirs.fetch_add(1, Ordering::SeqCst);
        }
        drain(&mut socket);
    });
    let mut bench = Bench::new();
    let client = bench.opened(&peer.url(), Settings::default());
    // Waits until the server can send nothing more.
    let mut before = usize::MAX;
    while before != written.load(Ordering::SeqCst) {
        before = written.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(
        before < MESSAGES,
        "all of {MESSAGES} messages were taken of a server that nobody listens to"
    );
    // Only the read-ahead is available; nothing more is read until messages are taken.
    for _ in 0..READ_AHEAD / SIZE {
        assert_eq!(bench.message().as_bytes().len(), SIZE);
    }
    for _ in READ_AHEAD / SIZE..MESSAGES {
        assert_eq!(bench.message().as_bytes().len(), SIZE);
    }
    bench.clients.close(client, 1000, "");
    bench.closed();
    peer.end();
}

#[test]
fn the_number_of_clients_is_limited() {
    // Raises the limit of descriptors, so that all clients can be opened.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to write to, and then to read.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(16_384);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&format!("ws://{}/", silent.local_addr().unwrap())).unwrap();
    let mut clients = Clients::new(Box::new(|_| ()));
    let open =
        |clients: &mut Clients| clients.open(address.clone(), Settings::default(), &Roots::System);
    let first = open(&mut clients).unwrap();
    for _ in 1..MAX_CLIENTS {
        open(&mut clients).unwrap();
    }
    let error = open(&mut clients).unwrap_err();
    assert!(matches!(error, OpenError::TooMany));
    assert_eq!(error.to_string(), "there are already 1000 clients: close some of them");
    clients.abandon(first);
    let deadline = std::time::Instant::now() + TEST_TIMEOUT;
    while open(&mut clients).is_err() {
        assert!(std::time::Instant::now() < deadline, "its place is free");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_limit_has_a_row_and_a_test() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = std::fs::read_to_string(root.join("../../docs/SECURITY-MODEL.md")).unwrap();
    let table = model
        .split("| limit of a client |")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .unwrap();
    let tests: String = ["endings", "handshakes", "limits"]
        .iter()
        .map(|name| std::fs::read_to_string(root.join(format!("tests/it/{name}.rs"))).unwrap())
        .collect();
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert!(rows.len() >= 9, "{rows:?}");
    for row in rows {
        let test = row.rsplit('`').nth(1).unwrap();
        assert!(tests.contains(&format!("#[test]\nfn {test}()")), "{test} is no test");
    }
    let settings = format!("{:#?}", Settings::default());
    let own =
        settings.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    for field in own.filter_map(|line| Some(line.trim().split_once(": ")?.0)) {
        let is_limit = !["subprotocols", "headers", "compresses", "group"].contains(&field);
        assert!(!is_limit || table.contains(&format!("`{field}`")), "{field} has no row");
    }
}
