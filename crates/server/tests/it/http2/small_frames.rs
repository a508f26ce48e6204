//! Small DATA frames that wait because the application is slow.
//!
//! h2 closes a connection once the small frames that nobody has taken from it exceed a budget. Only
//! a client that has done nothing wrong meets that budget while the application is slow, so frames
//! must not be left with h2 for longer than it takes to copy them.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rookery_exchange::{Command, Share};
use rookery_server::{Config, Limits, ListenerConfig, TrustedProxies};

use crate::http::streamed_request_bodies::{receiving_at, rules};
use crate::http2::websocket::{CONNECT, Sockets, app_with, echoing, on_command};
use crate::support::http2::{END_STREAM, GET, Heard, Peer, frame, kind, post};
use crate::support::tls::{settings, site};
use crate::support::{App, Handler, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

/// The payload of each DATA frame in bytes. The frames that fit into the window of a stream exceed
/// h2's budget four times.
const SMALL: usize = 32;

/// The bytes that fit into the window of a stream.
const WINDOW: usize = 240 << 10;

/// Splits `bytes` into DATA frames of [`SMALL`] bytes.
fn in_small_frames(stream: u32, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(SMALL).flat_map(|chunk| frame(kind::DATA, 0, stream, chunk)).collect()
}

/// Starts an application that decides about heads and WebSockets only after a message to the sender
/// that is returned. It responds to requests with the length of the body.
fn deciding_at(limits: Limits, site: ListenerConfig) -> (App, Sender<()>) {
    let (decide, decided) = channel();
    let mut answers = echo(|exchange| {
        let len = exchange.body().len().to_string();
        exchange.begin_response(200);
        exchange.set_response_body(len.as_bytes());
    });
    let mut has_decided = false;
    let handler: Handler = Box::new(move |link, event| {
        has_decided = has_decided || decided.recv_timeout(TEST_TIMEOUT).is_ok();
        answers(link, event);
    });
    let site = ListenerConfig { sees_heads: true, ..site };
    (App::with(Config { limits, ..Config::default() }, site, handler), decide)
}

/// Returns true if the server has read all frames of a client and keeps the connection.
fn is_open(peer: &mut Peer) -> bool {
    peer.send(frame(kind::PING, 0, 0, b"8 octets"));
    peer.frame_of(kind::PING).is_some()
}

#[test]
fn a_websocket_message_that_arrives_at_once_in_small_frames_is_echoed() {
    let app = echoing();
    let mut sockets = Sockets::at(app.address);
    sockets.open(1);
    let message = vec![b'x'; WINDOW];
    sockets.peer.send(in_small_frames(1, &masked_frame(0x82, &message)));
    assert!(sockets.frame(1) == Some((0x82, message)));
}

#[test]
fn small_frames_wait_for_a_websocket_application_that_is_slow() {
    let (handler, go) = on_command();
    let app = app_with(Limits::default(), handler);
    let mut sockets = Sockets::at(app.address);
    sockets.open(1);
    let message = vec![b'x'; 4 << 10];
    let count = WINDOW / message.len();
    for _ in 0..count {
        sockets.peer.send(in_small_frames(1, &masked_frame(0x82, &message)));
    }
    assert!(is_open(&mut sockets.peer));
    go.send(()).unwrap();
    for _ in 0..count {
        assert!(sockets.frame(1) == Some((0x82, message.clone())));
    }
}

#[test]
fn small_frames_of_a_body_wait_for_the_application_that_receives_it() {
    let rules = rules();
    rules.holds.store(true, Ordering::Relaxed);
    let app = receiving_at(Limits::default(), &rules, site(settings(&["localhost"])));
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    peer.send(in_small_frames(1, &vec![1; WINDOW]));
    wait_until("the application has its first chunks", || rules.held().len() > 1);
    assert!(is_open(&mut peer));
    app.advance(Duration::from_secs(2));
    assert!(app.server.budget().used(Share::Incoming) >= 256 << 10);
    rules.holds.store(false, Ordering::Relaxed);
    for (call, bytes) in rules.held().drain(..) {
        app.server.link().send(Command::BodyConsumed { exchange: call, bytes });
    }
    app.server.link().flush();
    peer.send(frame(kind::DATA, END_STREAM, 1, b""));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    assert_eq!(peer.data(1), format!("{WINDOW} {WINDOW}").into_bytes());
    wait_until("nothing is charged", || app.server.budget().used(Share::Incoming) == 0);
}

#[test]
fn small_frames_of_a_body_wait_until_the_application_has_decided_about_the_head() {
    let (app, decide) = deciding_at(Limits::default(), site(settings(&["localhost"])));
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    peer.send(in_small_frames(1, &vec![1; WINDOW]));
    assert!(is_open(&mut peer));
    decide.send(()).unwrap();
    peer.send(frame(kind::DATA, END_STREAM, 1, b""));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    assert_eq!(peer.data(1), WINDOW.to_string().into_bytes());
}

#[test]
fn small_frames_from_a_trusted_proxy_wait_for_the_application() {
    // With so few streams, the budget of h2 is not larger than for other connections.
    let limits = Limits { http2_max_concurrent_streams: 2, ..Limits::default() };
    let proxies = TrustedProxies::parse(["127.0.0.1"]).unwrap();
    let listener = ListenerConfig { proxies, ..site(settings(&["localhost"])) };
    let (app, decide) = deciding_at(limits, listener);
    let mut proxy = Peer::new(&app);
    for (stream, head) in [(1, &post("/")[..]), (3, CONNECT)] {
        let client = ("x-forwarded-for", "192.0.2.1");
        proxy.begin(stream, &[head, &[client]].concat());
        proxy.send(in_small_frames(stream, &masked_frame(0x82, &vec![1; WINDOW])));
        assert!(is_open(&mut proxy));
    }
    decide.send(()).unwrap();
    proxy.send(frame(kind::DATA, END_STREAM, 1, b""));
    assert_eq!(proxy.outcome(1), Heard::Status(200));
    assert_eq!(proxy.outcome(3), Heard::Status(200));
    app.await_event(&format!("message {WINDOW}"));
}

#[test]
fn a_body_that_arrives_at_once_in_small_frames_is_spooled() {
    let limits = Limits { body_buffer_size: 1000, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let app = App::with(config, site(settings(&["localhost"])), echo(hello));
    let mut peer = Peer::new(&app);
    peer.begin(1, &post("/"));
    peer.send(in_small_frames(1, &vec![1; WINDOW]));
    peer.send(frame(kind::DATA, END_STREAM, 1, b""));
    assert_eq!(peer.outcome(1), Heard::Status(200));
    peer.ask(3, GET);
    assert_eq!(peer.outcome(3), Heard::Status(200));
}
