//! Clients under test, and servers that follow a script.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rookery_test_support::TEST_TIMEOUT;
use rookery_websocket::protocol::{OpCode, accept_key, encode_close, encode_frame};
use rookery_websocket_client::{Address, Clients, Content, Event, Roots, SendOutcome, Settings};

/// A limit for operations that are expected to time out.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// Clients, and the wake-ups that they cause.
pub(crate) struct Bench {
    pub(crate) clients: Clients,
    woken: mpsc::Receiver<()>,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let (wake, woken) = mpsc::channel();
        Bench { clients: Clients::new(Box::new(move |_| wake.send(()).unwrap_or(()))), woken }
    }

    pub(crate) fn open(&mut self, url: &str, settings: Settings) -> u64 {
        self.open_with(url, settings, &Roots::System)
    }

    pub(crate) fn open_with(&mut self, url: &str, settings: Settings, roots: &Roots) -> u64 {
        self.clients.open(Address::parse(url).unwrap(), settings, roots).unwrap()
    }

    /// Waits for the next event, about which the application must have been notified.
    pub(crate) fn next(&mut self) -> Event {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(event) = self.clients.next_event(0) {
                return event;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.woken.recv_timeout(left).expect("an event in time");
        }
    }

    /// Opens a client and returns its id.
    pub(crate) fn opened(&mut self, url: &str, settings: Settings) -> u64 {
        let client = self.open(url, settings);
        match self.next() {
            Event::Opened { client: opened, .. } => assert_eq!(opened, client),
            event => panic!("{event:?}"),
        }
        client
    }

    /// Returns the error of a client that could not be opened.
    pub(crate) fn failed(&mut self) -> (String, Option<u16>) {
        match self.next() {
            Event::Failed { message, status, .. } => (message, status),
            event => panic!("{event:?}"),
        }
    }

    /// Returns how a client ended: the code, the reason, and whether both sides sent close frames.
    pub(crate) fn closed(&mut self) -> (u16, String, bool) {
        match self.next() {
            Event::Closed { code, reason, is_clean, .. } => (code, reason, is_clean),
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn message(&mut self) -> Content {
        match self.next() {
            Event::Message { content, .. } => content,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) fn send(&mut self, client: u64, text: &str) -> SendOutcome {
        self.clients.send(client, Content::Text(text.to_owned()))
    }

    /// Waits until all messages of a client have been sent.
    pub(crate) fn sent(&self, client: u64) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while self.clients.queued_bytes(client) > 0 {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A server that accepts one connection and runs a function with it.
pub(crate) struct Peer<T> {
    address: SocketAddr,
    done: JoinHandle<T>,
}

impl<T: Send + 'static> Peer<T> {
    pub(crate) fn new(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> Peer<T> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = std::thread::spawn(move || {
            let socket = listener.accept().unwrap().0;
            socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            socket.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
            serve(socket)
        });
        Peer { address, done }
    }

    /// Creates a server that completes the opening handshake and then runs a function with the
    /// socket.
    pub(crate) fn upgraded(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> Peer<T> {
        Peer::new(|mut socket| {
            let head = head(&mut socket);
            socket.write_all(&response(&head, "")).unwrap();
            serve(socket)
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    pub(crate) fn end(self) -> T {
        self.done.join().unwrap()
    }
}

/// Reads the head of a request.
pub(crate) fn head(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Returns the value of a header in a head.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (named, value) = line.split_once(':')?;
        named.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns the response that RFC 6455 requires, with additional headers.
pub(crate) fn response(head: &str, more: &str) -> Vec<u8> {
    let key = header(head, "sec-websocket-key").unwrap();
    let accept = String::from_utf8(accept_key(key.as_bytes()).to_vec()).unwrap();
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: \
         Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{more}\r\n"
    )
    .into_bytes()
}

/// Encodes a frame of a server.
pub(crate) fn frame(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, opcode, true, None, payload);
    out
}

pub(crate) fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_close(&mut out, rookery_websocket::protocol::CloseCode::new(code), reason, None);
    out
}

/// Reads a frame of a client and returns its first byte and its unmasked payload, or `None` at the
/// end.
pub(crate) fn client_frame(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut start = [0; 2];
    socket.read_exact(&mut start).ok()?;
    assert!(start[1] & 0x80 != 0, "a client masks");
    let len = match start[1] & 0x7F {
        126 => {
            let mut len = [0; 2];
            socket.read_exact(&mut len).ok()?;
            usize::from(u16::from_be_bytes(len))
        }
        127 => {
            let mut len = [0; 8];
            socket.read_exact(&mut len).ok()?;
            usize::try_from(u64::from_be_bytes(len)).unwrap()
        }
        len => usize::from(len),
    };
    let mut mask = [0; 4];
    socket.read_exact(&mut mask).ok()?;
    let mut payload = vec![0; len];
    socket.read_exact(&mut payload).ok()?;
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Some((start[0], payload))
}

/// Reads to the end of a connection, even if the connection is reset.
pub(crate) fn drain(socket: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while matches!(socket.read(&mut bytes), Ok(n) if n > 0) {}
}
