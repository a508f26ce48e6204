//! What an idle WebSocket holds on the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rookery_exchange::{AppWaker, Command, Event};
use rookery_server::{Config, Server, Site};

/// Counts the bytes that live.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches an atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

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
        let live = LIVE.load(Ordering::Relaxed);
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

#[test]
fn an_idle_websocket_holds_little_and_what_has_gone_nothing() {
    const COUNT: usize = 500;
    let server = Server::new(Config::default(), Box::new(NoWaker));
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), Site::default()).unwrap();
    let address = listener.local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let app = std::thread::spawn({
        let (link, is_over) = (Arc::clone(server.link()), Arc::clone(&is_over));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                link.wait(Duration::from_millis(5));
                while let Some(event) = link.next() {
                    if let Event::Request(mut exchange) = event {
                        exchange.begin_reply(if exchange.is_upgrade() { 101 } else { 200 });
                        link.send(Command::Respond(exchange));
                    }
                }
            }
        }
    });
    drop(ask(address, UPGRADE));
    let before = settled();
    let sockets: Vec<TcpStream> = (0..COUNT).map(|_| ask(address, UPGRADE)).collect();
    let each = (settled() - before) / COUNT;
    println!("an idle WebSocket holds {each} bytes");
    // With the memory of its HTTP task it was 2,400.
    assert!(each < 1_400, "an idle WebSocket holds {each} bytes");
    drop(sockets);
    let left = settled().saturating_sub(before) / COUNT;
    // Its part of the tables, which are kept.
    assert!(left < 100, "a WebSocket that has gone holds {left} bytes");

    is_over.store(true, Ordering::Relaxed);
    app.join().unwrap();
}
