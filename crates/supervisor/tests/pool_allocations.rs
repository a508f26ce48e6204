//! Tests of the number of allocations on the I/O thread for a request or a WebSocket message
//! through the pool, at steady state.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::Exchange;
use rookery_exchange::wire::{Down, Up, read_request, response_body};
use rookery_server::{Config, ListenerConfig, Server};
use rookery_supervisor::{Backend, BackendRegistry, PoolLimits, WorkerId, pool};
use rookery_test_support::allocator::{self, CountingAllocator};
use rookery_worker_protocol::rings::{RingEnd, RingWakers, Sleep};
use rookery_worker_protocol::{RState, SharedScoreboard, now};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Sends `request` `n` times, each after the response to the one before. All responses have the
/// same length.
fn ask(socket: &mut TcpStream, request: &[u8], answer_len: usize, n: usize) {
    let mut buffer = [0; 4096];
    for _ in 0..n {
        socket.write_all(request).unwrap();
        let mut got = 0;
        while got < answer_len {
            let read = socket.read(&mut buffer[got..]).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&buffer[..got]));
            got += read;
        }
        assert_eq!(got, answer_len, "{}", String::from_utf8_lossy(&buffer[..got]));
    }
}

fn head(socket: &mut TcpStream) -> usize {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    head.len()
}

/// Responds to every request and to every message in the rings.
fn serve((mut end, wakers): (RingEnd, RingWakers), scoreboard: &SharedScoreboard) {
    allocator::process::exclude_current_thread();
    let mut record = Vec::new();
    loop {
        let Some(arrived) = end.receiver.take(&mut record).unwrap() else {
            end.own_sleep.announce(Sleep::Waiting);
            if !end.receiver.has_any() {
                end.own_sleep.wait(Duration::from_secs(1));
            }
            end.own_sleep.set_awake();
            continue;
        };
        let mut out = Vec::new();
        let kind = match Down::read(arrived.kind, &record).unwrap() {
            Down::Request { content, .. } => {
                let mut exchange = Exchange::new();
                let blocks = Arc::default();
                read_request(content, 1, |id| id, &mut exchange, (None, true), &blocks).unwrap();
                scoreboard.count_taken();
                exchange.begin_response(if exchange.is_upgrade() { 101 } else { 200 });
                if !exchange.is_upgrade() {
                    exchange.push_response_header(b"content-type", b"text/plain").unwrap();
                    exchange.set_response_body(b"Hello, World!");
                }
                let ids = (exchange.id(), exchange.ticket());
                let kind = Up::write_response(&exchange, ids, None, &mut out);
                out.extend_from_slice(response_body(&exchange));
                kind
            }
            Down::Message { socket, kind, .. } => {
                Up::Message { socket, kind, is_waiting: false, content: b"abcd" }.write(&mut out)
            }
            _ => continue,
        };
        end.sender.send(kind, &out, None).unwrap();
        end.peer_sleep.wake_sleeper(|| wakers.wake_front_end());
    }
}

#[test]
fn forwarding_a_request_allocates_nothing() {
    allocator::process::exclude_current_thread();
    let (scoreboard, memory) = SharedScoreboard::create().unwrap();
    let theirs = SharedScoreboard::attach(&memory).unwrap();
    theirs.set_r_state(RState::Idle, now());
    let (end, wakers, handles) = RingEnd::create().unwrap();
    let worker_scoreboard = SharedScoreboard::attach(&memory).unwrap();
    let rings = handles.attach().unwrap();
    std::thread::spawn(move || serve(rings, &worker_scoreboard));
    std::thread::spawn(move || {
        allocator::process::exclude_current_thread();
        loop {
            theirs.set_r_state(RState::Idle, now());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let registry = Arc::new(BackendRegistry::default());
    let mut config = Config::default();
    // On a busy machine, a ping would be taken for a response.
    config.limits.ws_ping_interval = Duration::from_secs(3600);
    let application = pool(Arc::clone(&registry), PoolLimits::default());
    let server = Server::with_application(config, application);
    let listener =
        server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
    let id = WorkerId::new().unwrap();
    registry.add(&Backend::new((0, 1), 1, id, "".into(), scoreboard, (end, wakers)));
    let connect = || {
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    };
    let get = b"GET /a/path?and=query HTTP/1.1\r\nHost: localhost\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";
    let frame = [0x82, 0x84, 0, 0, 0, 0, 1, 2, 3, 4];
    for (what, request) in [("GET", &get[..]), ("a message", &frame)] {
        let mut socket = connect();
        let answer_len = if what == "GET" {
            socket.write_all(get).unwrap();
            let len = head(&mut socket) + 13;
            socket.read_exact(&mut [0; 13]).unwrap();
            len
        } else {
            let handshake =
                b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
            socket.write_all(handshake).unwrap();
            head(&mut socket);
            6
        };
        ask(&mut socket, request, answer_len, 200);
        let before = allocator::process::allocations();
        ask(&mut socket, request, answer_len, 2000);
        let spent = allocator::process::allocations() - before;
        // The timer wheel may grow. On a busy machine, R's idle state may also expire, which starts
        // a check.
        assert!(spent <= 100, "{what}: {spent} allocations");
    }
}
