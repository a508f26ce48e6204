//! What an idle WebSocket, and an idle connection that is kept alive, hold on the heap.

mod counting;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rookery_server::{Config, Limits, Server, Site};

const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

const LARGE: &[u8] = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Connects and reads up to the end of the answer's head.
fn ask(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    let (mut head, mut byte) = ([0; 4], [0]);
    while head != *b"\r\n\r\n" {
        socket.read_exact(&mut byte).unwrap();
        head.rotate_left(1);
        head[3] = byte[0];
    }
    socket
}

/// The bytes that live, once they no longer change.
fn settled() -> usize {
    let until = Instant::now() + Duration::from_secs(20);
    let mut seen = (0, Instant::now());
    loop {
        let live = counting::live_bytes();
        if live != seen.0 {
            seen = (live, Instant::now());
        }
        if seen.1.elapsed() > Duration::from_millis(200) {
            return live;
        }
        assert!(Instant::now() < until, "the heap does not come to rest");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens many by `request`, and closes them: what each holds, and what it leaves.
fn measure(address: SocketAddr, request: &[u8]) -> (usize, usize) {
    const COUNT: usize = 500;
    drop(ask(address, request));
    let before = settled();
    let sockets: Vec<TcpStream> = (0..COUNT).map(|_| ask(address, request)).collect();
    let each = (settled() - before) / COUNT;
    drop(sockets);
    (each, settled().saturating_sub(before) / COUNT)
}

#[test]
fn what_is_idle_holds_little_and_what_has_gone_nothing() {
    // Ticks of 10 ms: a connection gives its buffers up after two. What exchanges keep has a limit, and is not looked at.
    let limits = Limits { close_time: Duration::from_millis(40), pool_bytes: 0, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let large = vec![7; 4_000_000];
    let server = Server::answering(config, move |exchange| {
        exchange.begin_reply(200);
        exchange.set_reply_body(if exchange.path() == b"/large" { &large } else { b"" });
    });
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), Site::default()).unwrap();
    let address = listener.local_addr().unwrap();
    // With the memory of its HTTP task a WebSocket was 2,400; with hyper's buffers a connection was 13,000.
    for (what, request, allowed) in [("WebSocket", UPGRADE, 1_400), ("connection", REQUEST, 2_000)] {
        let (each, left) = measure(address, request);
        println!("an idle {what} holds {each} bytes");
        assert!(each < allowed, "an idle {what} holds {each} bytes");
        // Its part of the tables, which are kept.
        assert!(left < 100, "a {what} that has gone holds {left} bytes");
    }
    // More than the sockets' buffers take: all of them wait at once.
    let before = settled();
    let sockets: Vec<TcpStream> = (0..16).map(|_| ask(address, LARGE)).collect();
    settled();
    drop(sockets);
    let left = settled().saturating_sub(before);
    assert!(left < 1_000_000, "large replies that have gone hold {left} bytes");
}
