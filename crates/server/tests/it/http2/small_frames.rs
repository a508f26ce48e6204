//! Small DATA frames that wait because the application is slow.
//!
//! h2 closes a connection once the small frames that nobody has taken from it exceed a budget. Only
//! a client that has done nothing wrong meets that budget while the application is slow, so frames
//! must not be left with h2 for longer than it takes to copy them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rookery_exchange::{Command, Share};
use rookery_server::{Config, Limits};

use crate::http::streamed_request_bodies::{receiving_at, rules};
use crate::http2::websocket::{Sockets, app_with, echoing, on_command};
use crate::support::http2::{END_STREAM, GET, Heard, Peer, frame, kind, post};
use crate::support::tls::{settings, site};
use crate::support::{App, echo, hello, masked_frame, wait_until};

/// The payload of each DATA frame in bytes. The frames that fit into the window of a stream exceed
/// h2's budget four times.
const SMALL: usize = 32;

/// The bytes that fit into the window of a stream.
const WINDOW: usize = 240 << 10;

/// Splits `bytes` into DATA frames of [`SMALL`] bytes.
fn in_small_frames(stream: u32, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(SMALL).flat_map(|chunk| frame(kind::DATA, 0, stream, chunk)).collect()
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
    // The acknowledgement of the ping shows that the server has read all frames before it.
    sockets.peer.send(frame(kind::PING, 0, 0, b"8 octets"));
    assert!(sockets.peer.frame_of(kind::PING).is_some(), "the connection is still open");
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
    // The acknowledgement of the ping shows that the server has read all frames before it.
    peer.send(frame(kind::PING, 0, 0, b"8 octets"));
    assert!(peer.frame_of(kind::PING).is_some(), "the connection is still open");
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
