//! The events by which the application is notified of the end of a WebSocket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rookery_exchange::{Command, Event, MessageKind, Payload};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::{App, Handler, echo, hello, masked_frame};

/// Returns a handler that accepts WebSockets and sends each message back ten times.
fn tenfold() -> Handler {
    Box::new(|link, event| match event {
        Event::Request(mut exchange) => {
            exchange.begin_response(101);
            link.send(Command::Respond(exchange));
        }
        Event::Message { socket, payload, .. } => {
            for _ in 0..10 {
                let payload = Payload::Pooled(payload.as_bytes().to_vec());
                link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
            }
        }
        _ => {}
    })
}

fn closes(app: &App) -> Vec<String> {
    app.log.lock().unwrap().iter().filter(|line| line.starts_with("closed")).cloned().collect()
}

#[test]
fn the_close_is_told_when_the_peers_frame_is_read_and_once() {
    // The reply to the close frame is queued after messages that the client does not read.
    let limits = Limits { ws_close_timeout: Duration::from_secs(300), ..Limits::default() };
    let app =
        App::with(Config { limits, ..Config::default() }, ListenerConfig::default(), tenfold());
    let mut reads = app.connect();
    let mut dies = app.connect();
    for client in [&mut reads, &mut dies] {
        client.upgrade("/ws");
        client.send(masked_frame(0x82, &vec![1; 4 << 20]));
        // The other messages are queued: they exceed what the sockets buffer.
        assert_eq!(client.frame().unwrap().1.len(), 4 << 20);
        client.send(masked_frame(0x88, &[0x03, 0xE8]));
    }
    while closes(&app).len() < 2 {
        app.await_event("closed 1000");
        std::thread::sleep(Duration::from_millis(2));
    }
    // One transport breaks, and the other one is closed properly. The application gets no second
    // event.
    drop(dies);
    while let Some((opcode, payload)) = reads.frame() {
        assert!(
            (opcode, payload.len()) == (2, 4 << 20)
                || (opcode, &payload[..]) == (8, &[0x03, 0xE8][..])
        );
        if opcode == 8 {
            break;
        }
    }
    assert!(reads.wait_for_close());
    while app.listener().connections() > 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(closes(&app), ["closed 1000", "closed 1000"]);
    // The application gets no event after the close event.
    assert_eq!(app.log.lock().unwrap().last().unwrap(), "closed 1000");
}

#[test]
fn the_close_is_told_once_when_the_transport_dies_before_it() {
    let app = App::new(Limits::default(), hello);
    let mut client = app.connect();
    client.upgrade("/ws");
    // The application closes the WebSocket, and the client does not reply.
    client.send(masked_frame(0x81, b"close"));
    assert_eq!(client.frame().unwrap().0, 8);
    drop(client);
    app.await_event("closed 1006");
    while app.listener().connections() > 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(closes(&app), ["closed 1006"]);
}

#[test]
fn a_breach_is_told_at_once_and_once() {
    let limits = Limits { ws_close_timeout: Duration::from_secs(300), ..Limits::default() };
    let app = App::new(limits, hello);
    let mut client = app.connect();
    client.upgrade("/ws");
    client.send(masked_frame(0x83, b""));
    app.await_event("closed 1006");
    assert_eq!(client.frame().unwrap().1[..2], 1002u16.to_be_bytes());
    drop(client);
    while app.listener().connections() > 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(closes(&app), ["closed 1006"]);
}

#[test]
fn a_handshake_accepted_while_draining_gets_1001() {
    for stops in [false, true] {
        let (goes, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (go, waiting) = (Arc::clone(&goes), Arc::clone(&waits));
        let mut answer = echo(hello);
        let mut app = App::with(
            Config::default(),
            ListenerConfig::default(),
            Box::new(move |link, event| {
                waiting.store(true, Ordering::Relaxed);
                while !go.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                answer(link, event);
            }),
        );
        let mut client = app.connect();
        client.send(
            "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
        );
        while !waits.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if stops {
            app.stop();
        } else {
            app.listener().drain();
        }
        goes.store(true, Ordering::Relaxed);
        assert_eq!(client.response().unwrap().status, 101);
        assert_eq!(client.frame(), Some((8, 1001u16.to_be_bytes().to_vec())), "stops: {stops}");
        client.send(masked_frame(0x88, &1001u16.to_be_bytes()));
        assert!(client.wait_for_close());
        assert_eq!(app.await_event("closed"), "closed 1001");
    }
}
