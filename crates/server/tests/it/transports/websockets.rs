//! WebSockets.

use rookery_exchange::{Command, Event, MessageKind, Payload, Share};
use rookery_server::{Config, Limits, ListenerConfig};

use crate::support::transport::Transport;
use crate::support::{App, Handler, bytes, hello, masked_frame, wait_until};

super::matrix! {
    http1: Http1, https12: Https12, https13: Https13, http2: Http2;
    {
        messages_of_any_size_come_back,
        a_message_in_fragments_with_a_ping_between_is_one,
        what_is_sent_with_the_acceptance_arrives,
        a_breach_of_the_protocol_is_closed_with_its_code,
        a_websocket_is_closed_once_however_it_ends,
        a_client_that_reads_late_gets_every_message,
    }
}

fn messages_of_any_size_come_back(on: Transport) {
    let app = on.app(Limits::default(), hello);
    let mut socket = on.open(&app);
    let large = bytes(if on == Transport::Http1 { 20_000_000 } else { 3_000_000 });
    for len in [0, 1, 125, 126, 16_384, 65_535, 65_536, 200_000, 1_000_000, large.len()] {
        socket.send(&masked_frame(0x82, &large[..len]));
        let (opcode, payload) = socket.frame().unwrap();
        assert!(opcode == 2 && payload == large[..len], "{len}");
    }
    socket.send(&masked_frame(0x89, b"ping"));
    assert_eq!(socket.frame(), Some((10, b"ping".to_vec())));
}

fn a_message_in_fragments_with_a_ping_between_is_one(on: Transport) {
    let app = on.app(Limits::default(), hello);
    let mut socket = on.open(&app);
    for frame in
        [masked_frame(0x01, b"frag"), masked_frame(0x89, b"ping"), masked_frame(0x80, b"ments")]
    {
        for byte in frame {
            socket.send(&[byte]);
        }
    }
    assert_eq!(socket.frame(), Some((10, b"ping".to_vec())));
    assert_eq!(socket.frame(), Some((1, b"fragments".to_vec())));
}

/// Starts an application that accepts each WebSocket and then sends it these messages and a close
/// frame.
fn sending(on: Transport, messages: Vec<Vec<u8>>) -> App {
    let handler: Handler = Box::new(move |link, event| {
        let Event::Request(mut exchange) = event else { return };
        let socket = exchange.id();
        exchange.begin_response(101);
        link.send(Command::Respond(exchange));
        for message in &messages {
            let payload = Payload::Pooled(message.clone());
            link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
        }
        link.send(Command::Close { socket, code: 1011, reason: Vec::new() });
    });
    on.app_with(Config::default(), ListenerConfig::default(), handler)
}

fn what_is_sent_with_the_acceptance_arrives(on: Transport) {
    let app = sending(on, vec![b"welcome".to_vec()]);
    for _ in 0..if on == Transport::Http1 { 100 } else { 20 } {
        let mut socket = on.open(&app);
        assert_eq!(socket.frame(), Some((2, b"welcome".to_vec())));
        assert_eq!(socket.frame(), Some((8, 1011u16.to_be_bytes().to_vec())));
    }
}

fn a_breach_of_the_protocol_is_closed_with_its_code(on: Transport) {
    let app = on.app(Limits { ws_max_message_size: 1000, ..Limits::default() }, hello);
    let table: &[(&str, Vec<u8>, u16)] = &[
        ("reserved bits", masked_frame(0xC1, b""), 1002),
        ("a reserved opcode", masked_frame(0x83, b""), 1002),
        ("no mask", vec![0x81, 1, b'a'], 1002),
        ("a continuation of nothing", masked_frame(0x80, b"a"), 1002),
        ("text that is not UTF-8", masked_frame(0x81, &[0xFF]), 1007),
        ("a close of one byte", masked_frame(0x88, &[3]), 1002),
        ("a code that must not be sent", masked_frame(0x88, &[0x03, 0xED]), 1002),
        ("a message past the limit", masked_frame(0x82, &[0; 1001]), 1009),
        (
            "2^63 bytes announced",
            vec![0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0],
            1009,
        ),
        (
            "fragments past the limit",
            [masked_frame(0x02, &[0; 600]), masked_frame(0x80, &[0; 600])].concat(),
            1009,
        ),
    ];
    for (what, bytes, code) in table {
        let mut socket = on.open(&app);
        socket.send(bytes);
        let (opcode, payload) = socket.frame().unwrap();
        assert_eq!((opcode, &payload[..2]), (8, &code.to_be_bytes()[..]), "{what}");
        if on != Transport::Http2 {
            // Over HTTP/2, the stream has ended.
            socket.close(&code.to_be_bytes());
        }
        assert!(socket.wait_for_close(), "{what}");
    }
}

fn a_websocket_is_closed_once_however_it_ends(on: Transport) {
    let app = on.app(Limits::default(), hello);
    // The client leaves without a close frame.
    drop(on.open(&app));
    assert_eq!(app.await_event("closed"), "closed 1006");
    // The client sends a close frame, with and without a code.
    for (payload, event) in [(&[][..], "closed 1005"), (&[0x03, 0xE8], "closed 1000")] {
        let mut socket = on.open(&app);
        socket.close(payload);
        assert_eq!(socket.frame(), Some((8, payload.to_vec())));
        assert!(socket.wait_for_close());
        app.await_event(event);
    }
    // The application closes it.
    let mut socket = on.open(&app);
    socket.send(&masked_frame(0x81, b"close"));
    assert_eq!(socket.frame(), Some((8, [&4000u16.to_be_bytes()[..], b"bye"].concat())));
    socket.close(&4000u16.to_be_bytes());
    assert!(socket.wait_for_close());
    assert_eq!(app.await_event("closed 4000"), "closed 4000");
    assert_eq!(app.log.lock().unwrap().iter().filter(|line| line.starts_with("closed")).count(), 4);
}

fn a_client_that_reads_late_gets_every_message(on: Transport) {
    // The messages exceed what both sockets buffer.
    let messages: Vec<_> = (0..200u8).map(|at| vec![at; 100_000]).collect();
    let app = sending(on, messages.clone());
    let mut socket = on.open(&app);
    wait_until("the client is behind", || app.server.budget().used(Share::Outgoing) > 0);
    for (at, message) in messages.into_iter().enumerate() {
        assert!(socket.frame() == Some((2, message)), "{at}");
    }
    app.await_event("drained");
}
