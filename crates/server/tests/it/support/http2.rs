//! Two clients for HTTP/2: one that sends and receives raw frames, and the client of the crate h2.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request};
use rustls::ClientConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use rookery_test_support::client::tls_session;
use rookery_test_support::tls::client_config;

use crate::support::{App, Client, TEST_TIMEOUT};

// ---- raw frames ----

pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// A size update that empties the dynamic table of HPACK (RFC 7541, 6.3).
const EMPTY_TABLE: u8 = 0x20;

/// Error codes (RFC 9113, 7).
pub(crate) mod code {
    pub(crate) const NO_ERROR: u32 = 0;
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
    pub(crate) const REFUSED_STREAM: u32 = 7;
    pub(crate) const CANCEL: u32 = 8;
    pub(crate) const COMPRESSION_ERROR: u32 = 9;
    pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
}

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    fn code(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Status(u16),
    /// The stream was reset.
    Reset(u32),
    /// The connection ends with a GOAWAY frame.
    Goaway(u32),
    /// The connection was closed without a GOAWAY frame.
    Closed,
}

/// A client that can send any frames, valid or not.
pub(crate) struct Peer {
    client: Client,
    /// The frames that were read while the client looked for another frame.
    pub(crate) heard: Vec<Frame>,
    /// True once the client has sent the first header block, which empties its header table as the
    /// server's settings require (RFC 7541, 4.2).
    has_empty_table: bool,
}

fn http2_config() -> Arc<rustls::ClientConfig> {
    let mut config = client_config(None);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a setting (RFC 9113, 6.5.1).
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

fn integer(value: usize, out: &mut Vec<u8>) {
    if value < 127 {
        return out.push(value as u8);
    }
    out.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// Returns a header block of literal fields that are not indexed (RFC 7541, 6.2.2), so that it can
/// contain any names and values.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            integer(text.len(), &mut out);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// The head of an ordinary request.
pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "localhost")];

/// Returns an ordinary head with this method and path.
pub(crate) fn ordinary<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "https"), (":path", path), (":authority", "localhost")]
}

pub(crate) fn get(path: &str) -> [(&str, &str); 4] {
    ordinary("GET", path)
}

pub(crate) fn post(path: &str) -> [(&str, &str); 4] {
    ordinary("POST", path)
}

impl Peer {
    /// Connects a client that has negotiated HTTP/2 by ALPN and has sent nothing.
    pub(crate) fn silent(address: SocketAddr) -> Peer {
        Peer::of(Client::connect_tls(address, &http2_config(), "localhost").unwrap())
    }

    fn of(client: Client) -> Peer {
        Peer { client, heard: Vec::new(), has_empty_table: false }
    }

    /// Connects a client as [`new`](Self::new) does, which sends a PROXY header first.
    pub(crate) fn behind(app: &App, header: &str) -> Peer {
        let mut client = app.connect();
        client.send(header);
        let mut tls = Box::new(tls_session(&http2_config(), "localhost"));
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut client.socket).unwrap();
        }
        client.tls = Some(tls);
        Peer::of(client).greet(&[])
    }

    /// Connects a client that has sent the preface and its settings. The server must not use a
    /// header table, so that each head can be decoded on its own.
    pub(crate) fn new(app: &App) -> Peer {
        Peer::with(app, &[])
    }

    pub(crate) fn with(app: &App, settings: &[u8]) -> Peer {
        Peer::at(app.address, settings)
    }

    pub(crate) fn at(address: SocketAddr, settings: &[u8]) -> Peer {
        Peer::silent(address).greet(settings)
    }

    fn greet(mut self, settings: &[u8]) -> Peer {
        let settings = [&setting(1, 0), settings].concat();
        // The settings of the server are acknowledged before they were read, because the server
        // sends them first.
        let acknowledged = frame(kind::SETTINGS, ACK, 0, b"");
        self.send([PREFACE, &frame(kind::SETTINGS, 0, 0, &settings), &acknowledged].concat());
        self
    }

    /// Makes the receive buffer of the socket small.
    pub(crate) fn shrink_receive_buffer(&self) {
        self.client.shrink_receive_buffer();
    }

    /// Sends bytes. Returns false if the server no longer reads.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let tls = self.client.tls.as_mut().unwrap();
        for chunk in bytes.as_ref().chunks(16 << 10) {
            if tls.writer().write_all(chunk).is_err() {
                return false;
            }
            while tls.wants_write() {
                if tls.write_tls(&mut self.client.socket).is_err() {
                    return false;
                }
            }
        }
        true
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.try_send(bytes), "the server takes no more");
    }

    /// Sends a request without a body.
    pub(crate) fn ask(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let block = self.block(fields);
        self.send(frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &block));
    }

    /// Sends the head of a request whose body follows.
    pub(crate) fn begin(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let block = self.block(fields);
        self.send(frame(kind::HEADERS, END_HEADERS, stream, &block));
    }

    fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let update: &[u8] = if self.has_empty_table { &[] } else { &[EMPTY_TABLE] };
        self.has_empty_table = true;
        [update, &block(fields)].concat()
    }

    pub(crate) fn reset(&mut self, stream: u32) {
        self.send(frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes()));
    }

    /// Reads more bytes. Returns false at the end of the connection.
    fn fill(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        let tls = self.client.tls.as_mut().unwrap();
        match rustls::Stream::new(&mut **tls, &mut self.client.socket).read(&mut buffer) {
            Ok(n) => {
                self.client.read.extend_from_slice(&buffer[..n]);
                n > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("nothing more comes")
            }
            // The connection was reset, or ended without a TLS close notification.
            Err(_) => false,
        }
    }

    /// Reads the next frame, or `None` at the end of the connection.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        let read = loop {
            let read = &self.client.read;
            if read.len() >= 9 {
                let len =
                    usize::from(read[0]) << 16 | usize::from(read[1]) << 8 | usize::from(read[2]);
                if read.len() >= 9 + len {
                    break 9 + len;
                }
            }
            if !self.fill() {
                return None;
            }
        };
        let bytes: Vec<u8> = self.client.read.drain(..read).collect();
        let stream = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
        Some(Frame { kind: bytes[3], flags: bytes[4], stream, payload: bytes[9..].to_vec() })
    }

    /// Reads up to the next frame of a kind, and keeps the frames before it.
    pub(crate) fn frame_of(&mut self, kind: u8) -> Option<Frame> {
        if let Some(at) = self.heard.iter().position(|frame| frame.kind == kind) {
            return Some(self.heard.remove(at));
        }
        loop {
            match self.frame()? {
                frame if frame.kind == kind => return Some(frame),
                frame => self.heard.push(frame),
            }
        }
    }

    /// Returns the outcome of a request. Interim responses are skipped.
    pub(crate) fn outcome(&mut self, stream: u32) -> Heard {
        self.find(stream, true)
    }

    /// Returns the outcome of a request that was sent before the server's GOAWAY frame.
    pub(crate) fn outcome_past_goaway(&mut self, stream: u32) -> Heard {
        self.find(stream, false)
    }

    fn find(&mut self, stream: u32, ends_with_goaway: bool) -> Heard {
        let judge = |frame: &Frame| match frame.kind {
            kind::HEADERS if frame.stream == stream => Some(Heard::Status(status(&frame.payload)))
                .filter(|heard| *heard != Heard::Status(100)),
            kind::RST_STREAM if frame.stream == stream => Some(Heard::Reset(frame.code(0))),
            kind::GOAWAY if ends_with_goaway => Some(Heard::Goaway(frame.code(4))),
            _ => None,
        };
        if let Some(heard) = self.heard.iter().find_map(judge) {
            return heard;
        }
        loop {
            let Some(frame) = self.frame() else { return Heard::Closed };
            let heard = judge(&frame);
            self.heard.push(frame);
            if let Some(heard) = heard {
                return heard;
            }
        }
    }

    /// Reads up to the end of the connection. Returns the code of the GOAWAY frame, or `None` if
    /// there was none.
    pub(crate) fn goodbye(&mut self) -> Option<u32> {
        let mut found = self
            .heard
            .iter()
            .rev()
            .find(|frame| frame.kind == kind::GOAWAY)
            .map(|frame| frame.code(4));
        while let Some(frame) = self.frame() {
            if frame.kind == kind::GOAWAY {
                found = Some(frame.code(4));
            }
        }
        found
    }

    /// Returns the data of a stream up to its end.
    pub(crate) fn data(&mut self, stream: u32) -> Vec<u8> {
        let mut data = Vec::new();
        let mut waiting = std::mem::take(&mut self.heard).into_iter();
        loop {
            let frame = waiting.next().or_else(|| self.frame()).expect("the end of a stream");
            if frame.stream != stream {
                continue;
            }
            assert_ne!(frame.kind, kind::RST_STREAM, "{frame:?}");
            if frame.kind == kind::DATA {
                data.extend_from_slice(&frame.payload);
            }
            if matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.flags & END_STREAM != 0 {
                return data;
            }
        }
    }
}

/// Returns the status in the head of a response. The status is the first field, and is a literal or
/// an entry of the static table, because the server uses no header table.
fn status(block: &[u8]) -> u16 {
    // The block may begin with an update of the table size.
    let block = if block[0] & 0xE0 == 0x20 { &block[1..] } else { block };
    match block[0] {
        0x88 => 200,
        0x89 => 204,
        0x8A => 206,
        0x8B => 304,
        0x8C => 400,
        0x8D => 404,
        0x8E => 500,
        _ => {
            // The name is that of the static table, and the value may be Huffman-coded.
            let (len, text) = (usize::from(block[1] & 0x7F), &block[2..]);
            let digits =
                if block[1] & 0x80 == 0 { text[..len].to_vec() } else { digits(&text[..len]) };
            std::str::from_utf8(&digits).unwrap().parse().unwrap()
        }
    }
}

/// Decodes three digits of the Huffman code (RFC 7541, appendix B): 0 to 2 have five bits, the
/// others six.
fn digits(code: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> =
        code.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0, |number, bit| number << 1 | bit);
    let (mut at, mut digits) = (0, Vec::new());
    while digits.len() < 3 {
        let short = number(&bits[at..at + 5]);
        if short < 3 {
            digits.push(b'0' + short);
            at += 5;
        } else {
            digits.push(b'0' + number(&bits[at..at + 6]) - 0x19 + 3);
            at += 6;
        }
    }
    digits
}

// ---- the client of the crate h2 ----

/// TLS over a socket of tokio.
struct Secure {
    socket: TcpStream,
    tls: Box<ClientConnection>,
}

impl Secure {
    fn poll_flush_tls(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        while self.tls.wants_write() {
            let mut out = Now(&mut self.socket, cx);
            match self.tls.write_tls(&mut out) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// A socket that wakes a task when it becomes ready.
struct Now<'a, 'b>(&'a mut TcpStream, &'a mut Context<'b>);

impl std::io::Read for Now<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.0).poll_read(self.1, &mut buffer) {
            Poll::Ready(done) => done.map(|()| buffer.filled().len()),
            Poll::Pending => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl std::io::Write for Now<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match Pin::new(&mut *self.0).poll_write(self.1, bytes) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(std::io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Secure {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        loop {
            let mut piece = vec![0; buffer.remaining()];
            match this.tls.reader().read(&mut piece) {
                Ok(n) => {
                    buffer.put_slice(&piece[..n]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            match this.tls.read_tls(&mut Now(&mut this.socket, cx)) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            this.tls.process_new_packets().map_err(std::io::Error::other)?;
        }
    }
}

impl AsyncWrite for Secure {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        ready!(self.poll_flush_tls(cx))?;
        let n = self.tls.writer().write(bytes)?;
        if n == 0 && self.tls.is_handshaking() {
            // The session buffers a limited amount until the handshake is complete. Its end is
            // read, which wakes the task.
            return Poll::Pending;
        }
        // Bytes that cannot be sent now are sent with the next write or flush.
        let _ = self.poll_flush_tls(cx)?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush_tls(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A client of the crate h2 with one connection.
pub(crate) struct Two {
    pub(crate) runtime: Runtime,
    pub(crate) requests: h2::client::SendRequest<Bytes>,
}

/// A response as that client receives it.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// True if the body was received completely.
    pub(crate) is_whole: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Two {
    pub(crate) fn new(app: &App) -> Two {
        Two::to(app.address)
    }

    pub(crate) fn to(address: SocketAddr) -> Two {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .unwrap();
        let requests = runtime.block_on(async {
            let socket = TcpStream::connect(address).await.unwrap();
            let mut config = client_config(None);
            config.alpn_protocols = vec![b"h2".to_vec()];
            let tls = Box::new(tls_session(&Arc::new(config), "localhost"));
            // The client allows what browsers and hyper do, as long as the server has not sent its
            // own settings: no more than any server allows.
            let mut builder = h2::client::Builder::new();
            builder.initial_max_send_streams(100);
            let (requests, connection) = builder.handshake(Secure { socket, tls }).await.unwrap();
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    eprintln!("the connection ended: {error:?}");
                }
            });
            requests
        });
        Two { runtime, requests }
    }

    /// Sends a request and reads the response.
    pub(crate) fn request(&self, request: Request<Vec<u8>>) -> Result<Answer, h2::Error> {
        self.runtime.block_on(async {
            let answer = ask(self.requests.clone(), request);
            tokio::time::timeout(TEST_TIMEOUT, answer).await.expect("an answer in time")
        })
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request(to("GET", path, &[]).body(Vec::new()).unwrap()).unwrap()
    }
}

/// Returns a request for a path of `https://localhost`.
pub(crate) fn to(method: &str, path: &str, headers: &[(&str, &str)]) -> http::request::Builder {
    let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
}

/// Sends a request with its body as far as the windows allow, and reads the response.
pub(crate) async fn ask(
    requests: h2::client::SendRequest<Bytes>,
    request: Request<Vec<u8>>,
) -> Result<Answer, h2::Error> {
    let (head, body) = request.into_parts();
    let mut requests = requests.ready().await?;
    let (answer, mut sending) =
        requests.send_request(Request::from_parts(head, ()), body.is_empty())?;
    let upload = async {
        let mut rest = Bytes::from(body);
        while !rest.is_empty() {
            sending.reserve_capacity(rest.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await else {
                return;
            };
            let piece = rest.split_to(room.min(rest.len()));
            if sending.send_data(piece, rest.is_empty()).is_err() {
                return;
            }
        }
    };
    let download = async {
        let (head, mut frames) = answer.await?.into_parts();
        let (mut body, mut is_whole) = (Vec::new(), true);
        while let Some(data) = frames.data().await {
            match data {
                Ok(data) => {
                    body.extend_from_slice(&data);
                    let _ = frames.flow_control().release_capacity(data.len());
                }
                Err(_) => {
                    is_whole = false;
                    break;
                }
            }
        }
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, is_whole })
    };
    let (mut download, mut upload) = (std::pin::pin!(download), std::pin::pin!(upload));
    let mut is_sent = false;
    std::future::poll_fn(|cx| {
        is_sent = is_sent || upload.as_mut().poll(cx).is_ready();
        download.as_mut().poll(cx)
    })
    .await
}
