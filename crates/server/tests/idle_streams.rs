//! The heap memory of a silent stream of server-sent events.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod application;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use application::{Application, NoWaker};
use rookery_exchange::{ChunkAdmission, Command, Event, Payload, StreamOptions};
use rookery_server::{Config, Limits, ListenerConfig, Server};
use rookery_test_support::allocator::{self, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const REQUEST: &[u8] = b"GET /events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n";
const HELLO: &[u8] = b"data: hello\n\n";

/// Opens a stream and reads its first event.
fn open(address: std::net::SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(REQUEST).unwrap();
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(HELLO) {
        socket.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    socket
}

#[test]
fn a_silent_stream_of_events_holds_little() {
    const COUNT: usize = 500;
    const MOST: usize = 3_000;
    let config =
        Config { limits: Limits { pool_bytes: 0, ..Limits::default() }, ..Config::default() };
    let server = Server::new(config, Box::new(NoWaker));
    let rules = StreamOptions {
        is_pulled: false,
        sends_head_first: true,
        is_events: true,
        heartbeat: 0,
        is_compressible: false,
    };
    let mut streams = Vec::new();
    let _application = Application::start(&server, move |link, event| {
        let Event::Request(mut exchange) = event else { return };
        let (id, stream) = (exchange.id(), link.stream(rules));
        exchange.begin_response(200);
        exchange.push_response_header(b"Content-Type", b"text/event-stream").unwrap();
        exchange.set_response_stream(stream.clone());
        link.send(Command::Respond(exchange));
        assert_eq!(stream.flow.admit(HELLO.len()), ChunkAdmission::Continue);
        link.send(Command::Chunk {
            stream: id,
            payload: Payload::Pooled(HELLO.to_vec()),
            is_pushing: false,
        });
        link.flush();
        streams.push(stream);
    });
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let address = listener.local_addr().unwrap();
    drop(open(address));
    std::thread::sleep(Duration::from_millis(300));
    let before = allocator::process::live_bytes();
    let sockets: Vec<_> = (0..COUNT).map(|_| open(address)).collect();
    let until = Instant::now() + Duration::from_secs(60);
    let each = || allocator::process::live_bytes().saturating_sub(before) / COUNT;
    while each() >= MOST && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("a silent stream of events holds {} bytes", each());
    assert!(each() < MOST, "a silent stream of events holds {} bytes", each());
    drop(sockets);
}
