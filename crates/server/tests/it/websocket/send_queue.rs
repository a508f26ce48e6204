//! The send queue of a WebSocket whose client reads slowly or not at all.

use std::time::Duration;

use rookery_exchange::{Command, Event, Link, MessageKind, Payload, Share};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};

use crate::support::{App, Handler, masked_frame, wait_until};

/// Returns a handler that accepts WebSockets and responds to each message by `answer`.
fn on_message(mut answer: impl FnMut(&Link, u64) + Send + 'static) -> Handler {
    Box::new(move |link, event| match event {
        Event::Request(mut exchange) => {
            exchange.begin_response(101);
            link.send(Command::Respond(exchange));
        }
        Event::Message { socket, .. } => answer(link, socket),
        _ => {}
    })
}

fn send(link: &Link, socket: u64, len: usize) {
    let payload = Payload::Pooled(vec![0; len]);
    link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
}

fn app(limits: Limits, answer: impl FnMut(&Link, u64) + Send + 'static) -> App {
    App::with(Config { limits, ..Config::default() }, ListenerConfig::default(), on_message(answer))
}

fn flood(link: &Link, socket: u64) {
    for _ in 0..1000 {
        send(link, socket, 100_000);
    }
}

#[test]
fn a_peer_that_never_reads_is_dropped_and_the_application_told() {
    let limits = Limits {
        ws_max_send_queue_size: 4 << 20,
        ws_close_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let app = app(limits, flood);
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x81, b"flood me"));
    assert_eq!(app.await_event("closed"), "closed 1006");
    assert_eq!(app.server.reports().count(Rejection::Unread), 1);
}

#[test]
fn a_peer_that_reads_again_finds_whole_messages_and_1013() {
    let app = app(Limits { ws_max_send_queue_size: 4 << 20, ..Limits::default() }, flood);
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x81, b"flood me"));
    let mut messages = 0;
    loop {
        let (opcode, payload) = client.frame().expect("a close frame");
        if opcode == 8 {
            assert_eq!(payload[..2], 1013u16.to_be_bytes());
            break;
        }
        assert_eq!(payload.len(), 100_000);
        messages += 1;
    }
    assert!(messages < 1000, "all of them were sent");
    client.send(masked_frame(0x88, &1013u16.to_be_bytes()));
    assert!(client.wait_for_close());
    assert_eq!(app.await_event("closed"), "closed 1013");
}

#[test]
fn a_message_larger_than_the_queue_is_sent_whole() {
    let app =
        app(Limits { ws_max_send_queue_size: 1 << 20, ..Limits::default() }, |link, socket| {
            send(link, socket, 30_000_000);
            send(link, socket, 1000);
        });
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x81, b"a large one"));
    // The client reads only after the server has queued both messages.
    wait_until("they are queued", || app.server.budget().used(Share::Outgoing) > 20_000_000);
    assert_eq!(client.frame().unwrap().1.len(), 30_000_000);
    assert_eq!(client.frame().unwrap().1.len(), 1000);
    assert_eq!(app.server.reports().count(Rejection::Unread), 0);
}
