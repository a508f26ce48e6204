//! Compressed WebSocket messages allocate nothing at steady state, neither when they are read nor
//! when they are sent. The thread lends zlib's states, or the connection keeps them, and the
//! buffers are kept.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod application;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rookery_exchange::{Command, Event, WebSocketCompression};
use rookery_server::{Config, ListenerConfig, Server};
use rookery_test_support::allocator::{self, CountingAllocator};
use rookery_websocket::protocol::deflate::{DeflateConfig, Deflater, Fin, Takeover};
use rookery_websocket::protocol::{MaskKey, OpCode, Role, encode_message};

use self::application::{Application, NoWaker};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const WARM: usize = 100;
const COUNTED: usize = 400;

/// Returns frames of compressed messages of a client. Each frame has to be sent once, in this
/// order.
fn messages(len: usize, takeover: Takeover, count: usize) -> Vec<Vec<u8>> {
    let config = DeflateConfig::default().takeover(takeover);
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
    let text: Vec<u8> = (0..len).map(|at| b"abcdefgh "[at * at % 9]).collect();
    let encode = |_| {
        let mut out = Vec::new();
        let mask = Some(MaskKey([1, 2, 3, 4]));
        encode_message(&mut out, OpCode::Text, Fin::Last, mask, &text, Some(&mut deflater));
        assert!(
            out[0] & 0x40 != 0 && out.len() < len / 2,
            "{len}: {} bytes on the wire",
            out.len()
        );
        out
    };
    (0..count).map(encode).collect()
}

fn open(address: std::net::SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let handshake = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    socket.write_all(handshake).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.contains("sec-websocket-extensions: permessage-deflate"), "{head}");
    socket
}

/// Sends each message after the response to the previous one, which must be compressed as well.
fn exchange(socket: &mut TcpStream, messages: &[Vec<u8>]) {
    let mut payload = Vec::new();
    for message in messages {
        socket.write_all(message).unwrap();
        let mut head = [0; 2];
        socket.read_exact(&mut head).unwrap();
        assert_eq!(head[0], 0xC1, "a compressed text message");
        let len = match head[1] {
            126 => {
                let mut long = [0; 2];
                socket.read_exact(&mut long).unwrap();
                usize::from(u16::from_be_bytes(long))
            }
            short => usize::from(short),
        };
        payload.resize(len, 0);
        socket.read_exact(&mut payload).unwrap();
    }
}

#[test]
fn a_compressed_message_allocates_nothing() {
    allocator::process::exclude_current_thread();
    for takeover in [Takeover::None, Takeover::Kept] {
        let server = Server::new(Config::default(), Box::new(NoWaker));
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        let app = Application::start(&server, move |link, event| {
            allocator::process::exclude_current_thread();
            match event {
                Event::Request(mut exchange) => {
                    exchange.begin_response(101);
                    exchange.response_mut().set_compression(WebSocketCompression {
                        level: 2,
                        threshold: 512,
                        keeps_window: takeover == Takeover::Kept,
                    });
                    link.send(Command::Respond(exchange));
                }
                Event::Message { socket, kind, payload, .. } => {
                    link.send(Command::Send { socket, kind, payload });
                }
                _ => {}
            }
        });
        // The messages are smaller than those that another thread compresses.
        for len in [600, 4000, 60_000] {
            let messages = messages(len, takeover, WARM + COUNTED);
            let mut socket = open(listener.local_addr().unwrap());
            exchange(&mut socket, &messages[..WARM]);
            let before = allocator::process::allocations();
            exchange(&mut socket, &messages[WARM..]);
            let spent = allocator::process::allocations() - before;
            // A timer wheel or the runtime's queue may grow once.
            assert!(
                spent <= 4,
                "{len} bytes, {takeover:?}: {spent} allocations in {COUNTED} messages"
            );
        }
        drop(app);
    }
}
