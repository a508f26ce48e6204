//! A small application over the link, and a client of plain sockets.

pub(crate) mod http2;
pub(crate) mod tls;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, Exchange, Link};
use rookery_server::{Config, Limits, Listener, ListenerConfig, Server};
use rustls::ClientConnection;

use crate::application::{Application, NoWaker};

/// Tests wait this long for what should come at once; the machine may be busy.
/// What a machine that is busy may take for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what comes by itself.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A server with an application on a thread of its own.
pub(crate) struct App {
    pub(crate) server: Server,
    listener: Option<Listener>,
    pub(crate) address: SocketAddr,
    application: Option<Application>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
}

/// What is done with an event; `true` when it has been dealt with.
pub(crate) type Handler = Box<dyn FnMut(&Link, Event) + Send>;

impl App {
    /// Starts a server on a free port whose application answers by `reply`.
    pub(crate) fn new(limits: Limits, reply: impl FnMut(&mut Exchange) + Send + 'static) -> App {
        App::with(Config { limits, ..Config::default() }, ListenerConfig::default(), echo(reply))
    }

    pub(crate) fn with(config: Config, site: ListenerConfig, mut handler: Handler) -> App {
        let server = Server::new(config, Box::new(NoWaker));
        let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let events = Arc::clone(&log);
        let application = Application::start(&server, move |link, event| {
            events.lock().unwrap().push(describe(&event));
            handler(link, event);
        });
        App { server, listener: Some(listener), address, application: Some(application), log }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn listener(&self) -> &Listener {
        self.listener.as_ref().unwrap()
    }

    pub(crate) fn stop(&mut self) {
        self.listener.take().unwrap().stop();
    }

    /// Waits until the application has seen an event that starts so.
    pub(crate) fn await_event(&self, start: &str) -> String {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(found) =
                self.log.lock().unwrap().iter().find(|line| line.starts_with(start))
            {
                return found.clone();
            }
            assert!(
                std::time::Instant::now() < until,
                "no {start:?} in {:?}",
                self.log.lock().unwrap()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn requests(&self) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.starts_with("request")).count()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        drop(self.application.take());
        drop(self.listener.take());
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::Request(exchange) => format!("request {}", String::from_utf8_lossy(exchange.path())),
        Event::Head(exchange) => format!("head {}", String::from_utf8_lossy(exchange.path())),
        Event::Message { payload, .. } => format!("message {}", payload.as_bytes().len()),
        Event::Closed { code, reason, .. } if reason.is_empty() => format!("closed {code}"),
        Event::Closed { code, reason, is_clean, .. } => {
            format!("closed {code} {reason:?} {is_clean}")
        }
        Event::Drained { .. } => "drained".to_owned(),
        Event::Body { payload, .. } => format!("body {}", payload.as_bytes().len()),
        Event::BodyEnd { reason, .. } => format!("body ended {reason:?}"),
        Event::Pull { .. } => "want".to_owned(),
        Event::Writable { .. } => "room".to_owned(),
        Event::StreamEnded { reason, .. } => format!("departed {reason:?}"),
    }
}

/// Answers requests by `reply`, accepts WebSockets and echoes their messages. A message `close` closes.
pub(crate) fn echo(mut reply: impl FnMut(&mut Exchange) + Send + 'static) -> Handler {
    Box::new(move |link, event| match event {
        Event::Request(mut exchange) => {
            if exchange.is_upgrade() {
                exchange.begin_response(101);
            } else {
                reply(&mut exchange);
            }
            link.send(Command::Respond(exchange));
        }
        Event::Head(exchange) => link.send(Command::ReadBody(exchange)),
        Event::Message { socket, kind, payload, .. } => {
            if payload.as_bytes() == b"close" {
                link.send(Command::Close { socket, code: 4000, reason: b"bye".to_vec() });
            } else {
                link.send(Command::Send { socket, kind, payload });
            }
        }
        _ => {}
    })
}

/// Runs a test in a process of its own, whose limits may be changed. `true` in that process.
pub(crate) fn alone(name: &str) -> bool {
    if std::env::var_os("ROOKERY_TEST_ALONE").is_some() {
        return true;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env("ROOKERY_TEST_ALONE", "1");
    assert!(child.status().unwrap().success());
    false
}

/// The usual reply.
pub(crate) fn hello(exchange: &mut Exchange) {
    exchange.begin_response(200);
    exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
    exchange.set_response_body(b"Hello, World!");
}

/// A client of plain sockets, or with TLS over them.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    pub(crate) tls: Option<Box<ClientConnection>>,
    pub(crate) read: Vec<u8>,
}

/// A reply as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Client {
    /// Makes its system take less of what it does not read.
    pub(crate) fn little_room(&self) {
        let small: libc::c_int = 64 << 10;
        // SAFETY: an open socket and a valid option of the size said.
        unsafe {
            libc::setsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&self.socket),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                (&raw const small).cast(),
                libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap(),
            );
        }
    }

    pub(crate) fn connect(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket, tls: None, read: Vec::new() }
    }

    /// Waits until the server has read all that was sent: the I/O thread has dealt with it before it accepts whoever comes later.
    pub(crate) fn until_read(&self) {
        if !cfg!(target_os = "linux") {
            return std::thread::sleep(Duration::from_millis(500));
        }
        let ours = self.socket.local_addr().unwrap().port();
        let theirs = self.socket.peer_addr().unwrap().port();
        // What is queued at the end of a connection that has these ports, by proc(5).
        let queued = |from: u16, to: u16| {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let of_line = |line: &str| {
                let words: Vec<&str> = line.split_ascii_whitespace().collect();
                let is_it = words.get(1)?.ends_with(&format!(":{from:04X}"))
                    && words.get(2)?.ends_with(&format!(":{to:04X}"));
                is_it.then(|| (*words.get(4).unwrap()).to_owned())
            };
            table.lines().find_map(of_line)
        };
        until("the server reads", || {
            queued(ours, theirs).is_some_and(|queues| queues.starts_with("00000000:"))
                && queued(theirs, ours).is_none_or(|queues| queues.ends_with(":00000000"))
        });
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let mut bytes = bytes.as_ref();
        let Some(tls) = &mut self.tls else { return self.socket.write_all(bytes).unwrap() };
        while !bytes.is_empty() {
            let n = tls.writer().write(bytes).unwrap();
            bytes = &bytes[n..];
            while tls.wants_write() {
                tls.write_tls(&mut self.socket).unwrap();
            }
        }
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.response().expect("a reply")
    }

    /// Reads one reply; `None` when the connection was closed before its first byte.
    pub(crate) fn response(&mut self) -> Option<Reply> {
        self.reply_to("GET")
    }

    pub(crate) fn reply_to(&mut self, method: &str) -> Option<Reply> {
        let head_len = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill() {
                assert!(
                    self.read.is_empty(),
                    "half a head: {:?}",
                    String::from_utf8_lossy(&self.read)
                );
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..head_len).collect()).unwrap();
        let status = head[9..12].parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        if method == "HEAD" || status == 204 || status == 304 || status < 200 {
            return Some(reply);
        }
        if let Some(len) = reply.header("content-length") {
            let len: usize = len.parse().unwrap();
            while self.read.len() < len {
                assert!(self.fill(), "half a body: {reply:?}");
            }
            reply.body = self.read.drain(..len).collect();
        } else if reply.header("transfer-encoding").is_some() {
            loop {
                let line = loop {
                    if let Some(at) = self.read.windows(2).position(|window| window == b"\r\n") {
                        break at;
                    }
                    assert!(self.fill(), "half a chunk");
                };
                let len =
                    usize::from_str_radix(std::str::from_utf8(&self.read[..line]).unwrap(), 16)
                        .unwrap();
                while self.read.len() < line + 2 + len + 2 {
                    assert!(self.fill(), "half a chunk");
                }
                reply.body.extend_from_slice(&self.read[line + 2..line + 2 + len]);
                self.read.drain(..line + 2 + len + 2);
                if len == 0 {
                    break;
                }
            }
        } else {
            while self.fill() {}
            reply.body = std::mem::take(&mut self.read);
        }
        Some(reply)
    }

    /// Whether the server has closed the connection, with a FIN or a reset.
    pub(crate) fn is_closed(&mut self) -> bool {
        assert!(self.read.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.read));
        !self.fill()
    }

    pub(crate) fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 65536];
        let read = match &mut self.tls {
            None => self.socket.read(&mut buffer),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).read(&mut buffer),
        };
        match read {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("reading: {error}"),
        }
    }

    /// Opens a WebSocket, sending `also` in the same segment as the request.
    pub(crate) fn upgrade(&mut self, also: &[u8]) -> Reply {
        let mut bytes =
            b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
                .to_vec();
        bytes.extend_from_slice(also);
        self.send(bytes);
        self.response().expect("an answer to the handshake")
    }

    /// [`frame`](Self::frame), if its first byte is there in time. `None` at the end as well.
    pub(crate) fn frame_within(&mut self, time: Duration) -> Option<(u8, Vec<u8>)> {
        if self.read.is_empty() {
            self.socket.set_read_timeout(Some(time)).unwrap();
            let has_come = matches!(self.socket.peek(&mut [0]), Ok(1));
            self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
            if !has_come {
                return None;
            }
        }
        self.frame()
    }

    /// Reads one unmasked frame: opcode and payload; `None` at the end.
    pub(crate) fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut need = 2;
        loop {
            while self.read.len() < need {
                if !self.fill() {
                    return None;
                }
            }
            let short = usize::from(self.read[1] & 0x7F);
            let (header, len) = match short {
                126 if self.read.len() >= 4 => {
                    (4, usize::from(u16::from_be_bytes([self.read[2], self.read[3]])))
                }
                127 if self.read.len() >= 10 => (
                    10,
                    usize::try_from(u64::from_be_bytes(self.read[2..10].try_into().unwrap()))
                        .unwrap(),
                ),
                126 => (4, 0),
                127 => (10, 0),
                len => (2, len),
            };
            need = header + len;
            if self.read.len() >= need && (short < 126 || self.read.len() >= header) {
                let opcode = self.read[0] & 0xF;
                let payload = self.read[header..need].to_vec();
                self.read.drain(..need);
                return Some((opcode, payload));
            }
        }
    }
}

/// A masked frame.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | u8::try_from(len).unwrap()),
        len @ 126..65536 => {
            frame.push(0x80 | 0x7E);
            frame.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            frame.push(0x80 | 0x7F);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}
