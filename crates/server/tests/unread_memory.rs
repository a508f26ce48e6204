//! The memory that clients which never read make the server hold. The budget counts all of it, and
//! the server stops reading their WebSockets.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod application;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rookery_exchange::{Command, Event, Lease, Link, Payload, ResponseBody, Share};
use rookery_server::{Config, Limits, Listener, ListenerConfig, Server};
use rookery_test_support::TEST_TIMEOUT;
use rookery_test_support::allocator::{self, CountingAllocator};
use socket2::SockRef;

use self::application::{Application, NoWaker};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The bytes that are not counted because their number is constant: scratch buffers, pooled
/// buffers, tables and threads.
const CONSTANT: usize = 6 << 20;

/// The bytes of a large response.
const LARGE: usize = 5_000_000;

/// The allocator counts for the whole process, so that the tests run one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// Whether the application copies what it sends into the server, or lends its own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sends {
    Copies,
    Lends,
}

/// Lends memory to the server. The token is the address of the memory, which is freed when the
/// server returns the token.
fn lend(link: &Link, bytes: Vec<u8>) -> Lease {
    let bytes: &'static mut [u8] = Box::leak(bytes.into_boxed_slice());
    let (len, start) = (bytes.len(), NonNull::from(&mut *bytes).cast::<u8>());
    LENT.lock().unwrap_or_else(PoisonError::into_inner).push((start.as_ptr() as usize, len));
    // SAFETY: Only `take_back` frees the memory, when it gets the token.
    unsafe { Lease::new(start, len, start.as_ptr() as u64, link.releases()) }
}

static LENT: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

fn take_back(link: &Link) {
    let mut tokens = Vec::new();
    link.releases().take(&mut tokens);
    let mut lent = LENT.lock().unwrap_or_else(PoisonError::into_inner);
    for token in tokens {
        let at = lent.iter().position(|(start, _)| *start as u64 == token).expect("it was lent");
        let (start, len) = lent.swap_remove(at);
        // SAFETY: The memory was leaked with this length, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start as *mut u8, len)) });
    }
}

struct Echo {
    _application: Application,
    listener: Listener,
    server: Server,
    before: usize,
}

impl Echo {
    /// Starts an application that echoes each message, and responds to requests with a large body.
    fn new(sends: Sends) -> Echo {
        let limits =
            Limits { max_client_memory: Some(2 << 30), pool_bytes: 0, ..Limits::default() };
        let server = Server::new(Config { limits, ..Config::default() }, Box::new(NoWaker));
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        let application = Application::start(&server, move |link, event| {
            take_back(link);
            match event {
                Event::Request(mut exchange) => {
                    exchange.begin_response(if exchange.is_upgrade() { 101 } else { 200 });
                    if exchange.path() == b"/large" && sends == Sends::Lends {
                        exchange
                            .response_mut()
                            .set_body(ResponseBody::Lent(lend(link, vec![7; LARGE])));
                    } else if exchange.path() == b"/large" {
                        exchange.set_response_body(&vec![7; LARGE]);
                    }
                    link.send(Command::Respond(exchange));
                }
                Event::Head(exchange) => link.send(Command::ReadBody(exchange)),
                Event::Message { socket, kind, payload, .. } => {
                    let payload = match (sends, payload) {
                        (Sends::Lends, Payload::Pooled(bytes)) => {
                            let lease = lend(link, bytes.clone());
                            link.recycle(bytes);
                            Payload::Lent(lease)
                        }
                        (_, payload) => payload,
                    };
                    link.send(Command::Send { socket, kind, payload });
                }
                _ => {}
            }
        });
        let mut echo = Echo { _application: application, listener, server, before: 0 };
        // The first request makes the server allocate what it keeps for its whole life.
        drop(echo.ask(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        echo.before = allocator::process::settled_live_bytes();
        echo
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn ask(&self, request: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        take_little(&socket);
        socket.write_all(request).unwrap();
        let (mut head, mut byte) = ([0; 4], [0]);
        while head != *b"\r\n\r\n" {
            socket.read_exact(&mut byte).unwrap();
            head.rotate_left(1);
            head[3] = byte[0];
        }
        socket
    }

    fn used(&self) -> usize {
        Share::ALL.iter().map(|share| self.server.budget().used(*share)).sum()
    }

    /// Asserts that the budget counts all memory, except `uncounted` bytes, which have a limit of
    /// their own.
    fn assert_counted(&self, what: &str, uncounted: usize) -> usize {
        let held = allocator::process::settled_live_bytes().saturating_sub(self.before);
        let used = self.used();
        assert!(held <= used + uncounted + CONSTANT, "{what}: {held} are held, and {used} counted");
        held
    }
}

/// Makes the receive buffer of the client's socket small.
fn take_little(socket: &TcpStream) {
    SockRef::from(socket).set_recv_buffer_size(64 << 10).unwrap();
}

/// Sends `bytes` until the server takes no more for a while. Returns how many were sent.
fn send_while_taken(socket: &mut TcpStream, bytes: &[u8]) -> usize {
    socket.set_write_timeout(Some(Duration::from_millis(700))).unwrap();
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(n) => sent += n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => panic!("sending: {error}"),
        }
    }
    sent
}

/// Returns a masked message. Its mask is zero.
fn message(len: usize) -> Vec<u8> {
    let mut frame = match u16::try_from(len) {
        Ok(len) => [&[0x82, 0xFE][..], &len.to_be_bytes()].concat(),
        Err(_) => [&[0x82, 0xFF][..], &(len as u64).to_be_bytes()].concat(),
    };
    frame.extend_from_slice(&[0; 4]);
    frame.resize(frame.len() + len, 7);
    frame
}

/// The bytes that a client which never reads would send.
const ALL: usize = 96 << 20;

const UPGRADE: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

#[test]
fn a_websocket_whose_peer_never_reads_is_counted_and_read_no_further() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (sends, len) in [
        (Sends::Copies, 60_000),
        (Sends::Lends, 60_000),
        (Sends::Copies, 1_000_000),
        (Sends::Lends, 1_000_000),
    ] {
        let echo = Echo::new(sends);
        let mut socket = echo.ask(UPGRADE);
        let bytes = message(len).repeat(ALL / len);
        // The buffer belongs to the client, and was allocated before.
        let held_by_client = bytes.capacity();
        let sent = send_while_taken(&mut socket, &bytes);
        let waiting = rookery_exchange::QueueLimits::default().ws_max_receive_queue_size;
        let echo = Echo { before: echo.before + held_by_client, ..echo };
        let held = echo.assert_counted(&format!("{sends:?} {len}"), waiting);
        assert!(sent < ALL / 2, "{sends:?} {len}: {sent} bytes were read");
        assert!(held < 40 << 20, "{sends:?} {len}: {held} bytes are held");
        // A client that reads again gets everything, whatever it sends meanwhile.
        let mut reads = socket.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut left, mut buffer) =
                ((ALL / len) * (len + if len < 65_536 { 4 } else { 10 }), vec![0; 1 << 16]);
            while left > 0 {
                match reads.read(&mut buffer) {
                    Ok(n) if n > 0 => left -= n,
                    end => panic!("{left} bytes are missing: {end:?}"),
                }
            }
        });
        socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.write_all(&bytes[sent..]).unwrap();
        reader.join().unwrap();
    }
}

#[test]
fn bodies_that_stop_half_way_are_counted_in_memory_and_in_files() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (len, sent) in [(1_000_000, 900_000), (20_000_000, 10_000_000)] {
        let echo = Echo::new(Sends::Copies);
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        let part = Arc::new(vec![7; sent]);
        let echo = Echo { before: echo.before + sent, ..echo };
        let sockets: Vec<TcpStream> = (0..10)
            .map(|_| {
                let mut socket = TcpStream::connect(echo.address()).unwrap();
                socket.write_all(head.as_bytes()).unwrap();
                socket.write_all(&part).unwrap();
                socket
            })
            .collect();
        let held = echo.assert_counted(&format!("bodies of {len}"), 0);
        // Large bodies are spooled to a file.
        assert!(held < 10 * (2 << 20) + CONSTANT, "{held}");
        drop(sockets);
    }
}

#[test]
fn replies_that_nobody_reads_are_counted_whether_they_are_copied_or_lent() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for sends in [Sends::Copies, Sends::Lends] {
        let echo = Echo::new(sends);
        let sockets: Vec<TcpStream> =
            (0..10).map(|_| echo.ask(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
        let held = echo.assert_counted(&format!("{sends:?}"), 0);
        assert!(held > 5 * LARGE, "{held}: nothing is shown");
        drop(sockets);
    }
}
