//! A test client for HTTP/1.1 and WebSockets, with or without TLS. The client sends any bytes that
//! a test wants to send, valid or not.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, SockRef, Socket, Type};

use crate::{TEST_TIMEOUT, wait_until};

/// A test client with one connection to a server.
#[derive(Debug)]
pub struct Client {
    /// The client's TCP socket. Reading from it fails after [`TEST_TIMEOUT`].
    pub socket: TcpStream,
    /// The client's TLS session, or `None` without TLS.
    pub tls: Option<Box<ClientConnection>>,
    /// The bytes that the client has received and that the test has not used yet.
    pub read: Vec<u8>,
}

/// An HTTP response that the test client has received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code of the response.
    pub status: u16,
    /// The head of the response, including the empty line at its end.
    pub head: String,
    /// The body of the response, without the transfer coding.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header of the response.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the body of the response as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    /// Connects to a server without TLS.
    pub fn connect(address: SocketAddr) -> Client {
        Client::over(TcpStream::connect(address).expect("a listener"))
    }

    /// Connects to a server without TLS, from `source`, an address of this machine.
    pub fn connect_from(source: IpAddr, address: SocketAddr) -> Client {
        let socket =
            Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::new(source, 0).into()).expect("an address of this machine");
        socket.connect(&address.into()).expect("a listener");
        Client::over(socket.into())
    }

    fn over(socket: TcpStream) -> Client {
        socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        socket.set_nodelay(true).expect("a TCP socket");
        Client { socket, tls: None, read: Vec::new() }
    }

    /// Connects to a server with TLS. `name` is the host name that the client expects in the
    /// certificate.
    ///
    /// # Errors
    /// Returns the client's error or the server's alert if the TLS handshake fails.
    pub fn connect_tls(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> io::Result<Client> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(TEST_TIMEOUT))?;
        socket.set_nodelay(true)?;
        let mut tls = Box::new(tls_session(config, name));
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut socket)?;
        }
        Ok(Client { socket, tls: Some(tls), read: Vec::new() })
    }

    /// Shrinks the receive buffer of the client's socket, so that the server soon notices when this
    /// client does not read.
    pub fn shrink_receive_buffer(&self) {
        SockRef::from(&self.socket).set_recv_buffer_size(64 << 10).expect("an open socket");
    }

    /// Makes the client send a reset instead of a FIN when it closes its socket.
    pub fn reset_on_close(&self) {
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).expect("an open socket");
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        self.reset_on_close();
    }

    /// Waits until the server has read all bytes that the client sent. A connection that the test
    /// opens afterwards is accepted only after the server has processed these bytes.
    pub fn wait_until_server_has_read(&self) {
        if !cfg!(target_os = "linux") {
            return std::thread::sleep(Duration::from_millis(500));
        }
        let own = self.socket.local_addr().expect("a socket").port();
        let peer = self.socket.peer_addr().expect("a connected socket").port();
        // Returns the send and receive queue of the end of a connection with these ports; see
        // proc(5).
        let queues = |from: u16, to: u16| {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("proc");
            let of_line = |line: &str| {
                let fields: Vec<&str> = line.split_ascii_whitespace().collect();
                let is_end = fields.get(1)?.ends_with(&format!(":{from:04X}"))
                    && fields.get(2)?.ends_with(&format!(":{to:04X}"));
                is_end.then(|| fields.get(4).map(|queues| (*queues).to_owned())).flatten()
            };
            table.lines().find_map(of_line)
        };
        wait_until("the server reads", || {
            queues(own, peer).is_some_and(|queues| queues.starts_with("00000000:"))
                && queues(peer, own).is_none_or(|queues| queues.ends_with(":00000000"))
        });
    }

    /// Sends bytes to the server, through the TLS session if there is one.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let mut bytes = bytes.as_ref();
        let Some(tls) = &mut self.tls else {
            return self.socket.write_all(bytes).expect("a server that reads");
        };
        while !bytes.is_empty() {
            let n = tls.writer().write(bytes).expect("a session");
            bytes = &bytes[n..];
            while tls.wants_write() {
                tls.write_tls(&mut self.socket).expect("a server that reads");
            }
        }
    }

    /// Sends a GET request and returns the response.
    pub fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, b"")
    }

    /// Sends a request and returns the response. If the body is empty, the request has no
    /// `Content-Length`.
    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Response {
        let length = match body.len() {
            0 => String::new(),
            len => format!("Content-Length: {len}\r\n"),
        };
        self.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{length}\r\n"));
        self.send(body);
        self.response_to(method).expect("a response")
    }

    /// Reads the response to a GET request. Returns `None` if the connection was closed before the
    /// response began.
    pub fn response(&mut self) -> Option<Response> {
        self.response_to("GET")
    }

    /// Reads the response to a request with the method `method`. Returns `None` if the connection
    /// was closed before the response began.
    ///
    /// # Panics
    /// Panics if the connection ends before the response is complete.
    pub fn response_to(&mut self, method: &str) -> Option<Response> {
        let (response, is_whole) = self.partial_response_to(method)?;
        assert!(is_whole, "the response ended after {} bytes of its body", response.body.len());
        Some(response)
    }

    /// Reads the response to a request with the method `method`. Returns the response as far as it
    /// was received, and whether it is complete, or `None` if the connection was closed before the
    /// response began.
    pub fn partial_response_to(&mut self, method: &str) -> Option<(Response, bool)> {
        let mut response = self.try_head()?;
        let status = response.status;
        if method == "HEAD" || status == 204 || status == 304 || status < 200 {
            return Some((response, true));
        }
        let is_whole = if let Some(len) = response.header("content-length") {
            let len = len.parse().expect("a length");
            response.body = self.read_up_to(len);
            response.body.len() == len
        } else if response.header("transfer-encoding").is_some() {
            self.read_chunks(&mut response.body)
        } else {
            let (body, is_clean) = self.read_to_end();
            response.body = body;
            is_clean
        };
        Some((response, is_whole))
    }

    /// Reads the chunks of a body. Returns false if the connection ends before the last one.
    fn read_chunks(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            let end = loop {
                if let Some(at) = self.read.windows(2).position(|window| window == b"\r\n") {
                    break at;
                }
                if !self.fill_or_end() {
                    return false;
                }
            };
            let line: Vec<u8> = self.read.drain(..end + 2).collect();
            let digits = std::str::from_utf8(&line).expect("hexadecimal digits").trim_end();
            let len = usize::from_str_radix(digits, 16).expect("hexadecimal digits");
            let mut chunk = self.read_up_to(len + 2);
            let is_whole = chunk.len() == len + 2;
            assert!(!is_whole || chunk.ends_with(b"\r\n"), "no CRLF behind a chunk");
            chunk.truncate(len);
            body.extend(chunk);
            if !is_whole || len == 0 {
                return is_whole;
            }
        }
    }

    /// Reads the head of a response and leaves the body unread.
    pub fn head(&mut self) -> Response {
        self.try_head().expect("a response")
    }

    fn try_head(&mut self) -> Option<Response> {
        if self.read.is_empty() && !self.fill() {
            return None;
        }
        let head = String::from_utf8(self.read_through(b"\r\n\r\n")).expect("a head in ASCII");
        let status = head[9..12].parse().expect("a status code");
        Some(Response { status, head, body: Vec::new() })
    }

    /// Reads until the bytes `end` have been received. Returns the received bytes up to and
    /// including `end`.
    pub fn read_through(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|window| window == end) {
                return self.read.drain(..at + end.len()).collect();
            }
            assert!(
                self.fill(),
                "the connection ended before {:?}, after {:?}",
                String::from_utf8_lossy(end),
                String::from_utf8_lossy(&self.read)
            );
        }
    }

    /// Reads exactly `len` bytes from the server.
    pub fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        let bytes = self.read_up_to(len);
        assert_eq!(bytes.len(), len, "the connection ended early");
        bytes
    }

    /// Reads responses, and discards them, until `count` bytes `body` have arrived. Each response
    /// has this one byte as its body and nowhere else. This is much faster than reading each
    /// response by itself.
    pub fn read_bodies(&mut self, body: u8, count: usize) {
        let mut left = count;
        loop {
            left -= self.read.drain(..).filter(|byte| *byte == body).count();
            if left == 0 {
                return;
            }
            assert!(self.fill(), "the connection ended early");
        }
    }

    /// Reads `len` bytes from the server, or fewer if the connection ends.
    fn read_up_to(&mut self, len: usize) -> Vec<u8> {
        while self.read.len() < len && self.fill_or_end() {}
        self.read.drain(..len.min(self.read.len())).collect()
    }

    /// Reads up to the end of the connection. Returns the bytes, and whether the end was clean (by
    /// a FIN, and with TLS also by a close notification).
    pub fn read_to_end(&mut self) -> (Vec<u8>, bool) {
        let is_clean = loop {
            match self.try_fill() {
                Ok(true) => {}
                Ok(false) => break true,
                Err(error) => {
                    assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the server sends nothing");
                    break false;
                }
            }
        };
        (std::mem::take(&mut self.read), is_clean)
    }

    /// Waits until the server closes the connection, with a FIN or a reset. Returns false if the
    /// server sends data instead.
    pub fn wait_for_close(&mut self) -> bool {
        assert!(self.read.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.read));
        !self.fill()
    }

    /// Receives more bytes from the server and appends them to the buffer [`read`](Self::read).
    /// Returns false at the end of the connection.
    pub fn fill(&mut self) -> bool {
        match self.try_fill() {
            Ok(has_more) => has_more,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("reading failed: {error}"),
        }
    }

    /// Receives more bytes, or returns false at any end of the connection.
    fn fill_or_end(&mut self) -> bool {
        match self.try_fill() {
            Ok(has_more) => has_more,
            Err(error) => {
                assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the server sends nothing");
                false
            }
        }
    }

    fn try_fill(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; 64 << 10];
        let n = match &mut self.tls {
            None => self.socket.read(&mut buffer)?,
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).read(&mut buffer)?,
        };
        self.read.extend_from_slice(&buffer[..n]);
        Ok(n > 0)
    }

    /// Opens a WebSocket, and returns the response to the handshake.
    pub fn upgrade(&mut self, path: &str) -> Response {
        self.upgrade_with(path, "", b"")
    }

    /// Opens a WebSocket with the additional header lines `headers`, and returns the response to
    /// the handshake. The bytes `data` are sent directly behind the request, in the same segment.
    pub fn upgrade_with(&mut self, path: &str, headers: &str, data: &[u8]) -> Response {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
        );
        self.send([request.as_bytes(), data].concat());
        self.response().expect("a response to the handshake")
    }

    /// Sends a WebSocket message in one frame.
    pub fn message(&mut self, opcode: u8, payload: &[u8]) {
        self.send(masked_frame(0x80 | opcode, payload));
    }

    /// Reads an unmasked WebSocket frame if its first byte arrives within `time`. Returns `None` if
    /// that byte does not arrive in time, or if the connection ends.
    pub fn frame_within(&mut self, time: Duration) -> Option<(u8, Vec<u8>)> {
        if self.read.is_empty() {
            self.socket.set_read_timeout(Some(time)).expect("a timeout");
            let has_arrived = matches!(self.socket.peek(&mut [0]), Ok(1));
            self.socket.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
            if !has_arrived {
                return None;
            }
        }
        self.frame()
    }

    /// Reads an unmasked WebSocket frame, and returns its opcode and its payload. Returns `None` if
    /// the connection ends before the frame is complete.
    pub fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut needed = 2;
        loop {
            while self.read.len() < needed {
                if !self.fill() {
                    return None;
                }
            }
            let short = usize::from(self.read[1] & 0x7F);
            let (header, len) = match short {
                126 if self.read.len() >= 4 => {
                    (4, usize::from(u16::from_be_bytes([self.read[2], self.read[3]])))
                }
                127 if self.read.len() >= 10 => {
                    let len = self.read[2..10].try_into().expect("eight bytes");
                    (10, usize::try_from(u64::from_be_bytes(len)).expect("a small length"))
                }
                126 => (4, 0),
                127 => (10, 0),
                len => (2, len),
            };
            needed = header + len;
            if self.read.len() >= needed && (short < 126 || self.read.len() >= header) {
                let opcode = self.read[0] & 0xF;
                let payload = self.read[header..needed].to_vec();
                self.read.drain(..needed);
                return Some((opcode, payload));
            }
        }
    }

    /// Reads unmasked WebSocket frames until one is not a ping. Returns that frame's opcode and
    /// payload.
    pub fn frame_after_pings(&mut self) -> (u8, Vec<u8>) {
        loop {
            let (opcode, payload) = self.frame().expect("a frame");
            if opcode != 9 {
                return (opcode, payload);
            }
        }
    }
}

/// Returns a new TLS session of a client, which has not sent anything. `name` is the host name that
/// the client expects in the certificate.
pub fn tls_session(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).expect("a host name");
    ClientConnection::new(Arc::clone(config), name).expect("a valid configuration")
}

/// Returns the bytes of a masked WebSocket frame. `first` is the frame's first byte, with the
/// opcode and the flags.
pub fn masked_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK_BIT: u8 = 0x80;
    let mask = [1, 2, 3, 4];
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..126 => frame.push(MASK_BIT | len as u8),
        len @ 126..65536 => {
            frame.push(MASK_BIT | 0x7e);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            frame.push(MASK_BIT | 0x7f);
            frame.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}
