//! Messages that an application sends while it accepts a WebSocket arrive in order after the
//! handshake.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod application;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rookery_exchange::{Command, Event, MessageKind, Payload};
use rookery_server::{Config, ListenerConfig, Server};

use self::application::{Application, NoWaker};

#[test]
fn a_greeting_sent_with_the_handshake_is_not_lost() {
    let server = Server::new(Config::default(), Box::new(NoWaker));
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let app = Application::start(&server, |link, event| {
        let Event::Request(mut exchange) = event else { return };
        let socket = exchange.id();
        exchange.begin_response(101);
        // All commands are sent before the I/O thread is woken, so that it finds them in one batch.
        link.send(Command::Respond(exchange));
        for text in ["first", "second"] {
            let payload = Payload::Pooled(text.as_bytes().to_vec());
            link.send(Command::Send { socket, kind: MessageKind::Text, payload });
        }
        link.send(Command::Close { socket, code: 1000, reason: b"bye".as_slice().into() });
        link.flush();
    });
    for _ in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
            .write_all(
                b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .unwrap();
        let frames = b"\x81\x05first\x81\x06second\x88\x05\x03\xe8bye";
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "));
        let mut sent = vec![0; frames.len()];
        stream.read_exact(&mut sent).unwrap();
        assert_eq!(sent, frames);
    }
    drop(app);
}
