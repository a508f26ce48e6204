//! WebSockets over HTTP/2 (RFC 8441), by a client that sends raw frames.

use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::time::Duration;

use http::Request;
use rookery_exchange::{
    Command, Event, MessageKind, Payload, QueueLimits, Share, WebSocketCompression,
};
use rookery_server::{Config, Limits, ListenerConfig, OriginPolicy, Rejection};

use crate::support::http2::{END_STREAM, GET, Heard, Peer, Two, code, frame, kind, setting};
use crate::support::tls::{settings, site};
use crate::support::{App, Handler, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

pub(crate) const CONNECT: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "https"),
    (":path", "/ws?a=b"),
    (":authority", "localhost"),
    ("sec-websocket-version", "13"),
    ("origin", "https://localhost"),
];

/// The maximum size of a window (RFC 9113, 6.9.1).
const WIDE: u32 = (1 << 31) - 1;

pub(crate) fn app_with(limits: Limits, handler: Handler) -> App {
    App::with(Config { limits, ..Config::default() }, site(settings(&["localhost"])), handler)
}

pub(crate) fn echoing() -> App {
    app_with(Limits::default(), echo(hello))
}

/// The way in which the server has ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Whole,
    Reset(u32),
}

/// The WebSockets of an HTTP/2 connection, by their stream ids.
pub(crate) struct Sockets {
    pub(crate) peer: Peer,
    read: HashMap<u32, Vec<u8>>,
    ended: HashMap<u32, Ended>,
}

impl Sockets {
    /// Connects a client whose windows never stop the server.
    fn new(app: &App) -> Sockets {
        Sockets::at(app.address)
    }

    pub(crate) fn at(address: std::net::SocketAddr) -> Sockets {
        let peer = Peer::at(address, &setting(4, WIDE));
        let mut sockets = Sockets { peer, read: HashMap::new(), ended: HashMap::new() };
        sockets.peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &(WIDE - 65_535).to_be_bytes()));
        sockets
    }

    /// Connects a client whose streams have this window.
    fn with(app: &App, window: u32) -> Sockets {
        let peer = Peer::with(app, &setting(4, window));
        Sockets { peer, read: HashMap::new(), ended: HashMap::new() }
    }

    pub(crate) fn open(&mut self, stream: u32) {
        self.open_with(stream, &[]);
    }

    pub(crate) fn open_with(&mut self, stream: u32, also: &[(&str, &str)]) {
        self.peer.begin(stream, &[CONNECT, also].concat());
        assert_eq!(self.peer.outcome(stream), Heard::Status(200));
    }

    pub(crate) fn send(&mut self, stream: u32, bytes: &[u8]) {
        for part in bytes.chunks(16 << 10) {
            self.peer.send(frame(kind::DATA, 0, stream, part));
        }
    }

    /// Reads the next frame of the connection. Returns false at the end of the connection.
    fn fill(&mut self) -> bool {
        let heard = if self.peer.heard.is_empty() {
            self.peer.frame()
        } else {
            Some(self.peer.heard.remove(0))
        };
        let Some(heard) = heard else { return false };
        if heard.kind == kind::DATA {
            self.read.entry(heard.stream).or_default().extend_from_slice(&heard.payload);
        }
        if matches!(heard.kind, kind::DATA | kind::HEADERS) && heard.flags & END_STREAM != 0 {
            self.ended.insert(heard.stream, Ended::Whole);
        }
        if heard.kind == kind::RST_STREAM {
            let code = u32::from_be_bytes(heard.payload[..4].try_into().unwrap());
            self.ended.entry(heard.stream).or_insert(Ended::Reset(code));
        }
        true
    }

    /// Reads the next frame of a WebSocket, and returns its first byte and its payload. Returns
    /// `None` at the end of the stream.
    pub(crate) fn frame(&mut self, stream: u32) -> Option<(u8, Vec<u8>)> {
        loop {
            let read = self.read.entry(stream).or_default();
            let short = usize::from(read.get(1).copied().unwrap_or(0));
            let header = match short {
                126 => 4,
                127 => 10,
                _ => 2,
            };
            if read.len() >= header {
                let len = read[2..header].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                let len = if header == 2 { short } else { len };
                if read.len() >= header + len {
                    let whole: Vec<u8> = read.drain(..header + len).collect();
                    return Some((whole[0], whole[header..].to_vec()));
                }
            }
            if self.ended.contains_key(&stream) || !self.fill() {
                return None;
            }
        }
    }

    /// Returns how the server ends a stream, or `None` if the connection ends first.
    pub(crate) fn end(&mut self, stream: u32) -> Option<Ended> {
        while !self.ended.contains_key(&stream) {
            if !self.fill() {
                return None;
            }
        }
        self.ended.get(&stream).copied()
    }
}

/// Returns an application that accepts WebSockets, waits for a message of the test before it takes
/// messages, and then echoes them.
pub(crate) fn on_command() -> (Handler, std::sync::mpsc::Sender<()>) {
    let (go, goes) = channel();
    let mut has_gone = false;
    let mut handler = echo(hello);
    let handler: Handler = Box::new(move |link, event| {
        if matches!(event, Event::Message { .. }) && !has_gone {
            let _ = goes.recv_timeout(TEST_TIMEOUT);
            has_gone = true;
        }
        handler(link, event);
    });
    (handler, go)
}

#[test]
fn it_is_advertised() {
    let advertised = |peer: &mut Peer| {
        let settings = peer.frame_of(kind::SETTINGS).unwrap().payload;
        settings.chunks(6).find(|setting| setting[..2] == [0, 8]).map(|setting| setting[5])
    };
    assert_eq!(advertised(&mut Peer::new(&echoing())), Some(1));
}

#[test]
fn a_message_larger_than_the_connections_window_comes_back_beside_others() {
    let app = echoing();
    let mut sockets = Sockets::new(&app);
    sockets.open(1);
    sockets.open(3);
    sockets.send(1, &masked_frame(0x82, &vec![7; 200_000]));
    sockets.send(3, &masked_frame(0x82, b"beside it"));
    assert!(sockets.frame(1) == Some((0x82, vec![7; 200_000])));
    assert_eq!(sockets.frame(3), Some((0x82, b"beside it".to_vec())));
    // The data exceed the window of the connection. The DATA frames end anywhere within WebSocket
    // frames.
    let payload: Vec<u8> = (0..3_000_000usize).map(|at| (at % 249) as u8).collect();
    let mut two = masked_frame(0x81, b"before");
    two.extend(masked_frame(0x82, &payload));
    let mut granted = 1usize << 20;
    for part in two.chunks(10_007) {
        while granted < part.len() + (800 << 10) {
            // The server grants again what it has read.
            let update = sockets.peer.frame_of(kind::WINDOW_UPDATE).expect("a grant");
            if update.stream == 0 {
                granted += u32::from_be_bytes(update.payload[..4].try_into().unwrap()) as usize;
            }
        }
        granted -= part.len();
        sockets.peer.send(frame(kind::DATA, 0, 1, part));
    }
    assert_eq!(sockets.frame(1), Some((0x81, b"before".to_vec())));
    assert!(sockets.frame(1) == Some((0x82, payload)));
    assert_eq!(app.listener().connections(), 1);
    // Ordinary requests are served on the same connection.
    sockets.peer.ask(5, GET);
    assert_eq!(sockets.peer.outcome(5), Heard::Status(200));
}

#[test]
fn the_application_sees_a_handshake_without_a_key_and_its_headers_are_in_the_answer() {
    let (told, tells) = channel();
    let handler: Handler = Box::new(move |link, event| {
        let Event::Request(mut exchange) = event else { return };
        if exchange.is_upgrade() {
            let header = |name: &[u8]| {
                exchange.header(name).map(|value| String::from_utf8_lossy(value).into_owned())
            };
            let names: [&[u8]; 6] = [
                b"upgrade",
                b"connection",
                b"sec-websocket-key",
                b"sec-websocket-version",
                b"host",
                b"origin",
            ];
            let seen = names.map(header);
            let line = (exchange.method().to_vec(), exchange.path().to_vec(), exchange.is_https());
            let _ = told.send((line, seen));
            exchange.begin_response(101);
            for (name, value) in [
                (&b"Sec-WebSocket-Protocol"[..], &b"chat"[..]),
                (b"X-Own", b"1"),
                (b"Connection", b"Upgrade"),
                (b"Upgrade", b"websocket"),
                (b"Content-Length", b"5"),
                (b"Transfer-Encoding", b"chunked"),
            ] {
                exchange.push_response_header(name, value).unwrap();
            }
        } else {
            hello(&mut exchange);
        }
        link.send(Command::Respond(exchange));
    });
    let app = app_with(Limits::default(), handler);
    let two = Two::new(&app);
    two.get("/");
    two.runtime.block_on(async {
        let mut requests = two.requests.clone();
        let request = Request::builder()
            .method("CONNECT")
            .uri("https://localhost/ws?a=b")
            .extension(h2::ext::Protocol::from_static("websocket"))
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "x")
            .header("origin", "https://localhost")
            .body(())
            .unwrap();
        let (answer, _sending) = requests.send_request(request, false).unwrap();
        let answer = tokio::time::timeout(TEST_TIMEOUT, answer).await.expect("in time").unwrap();
        assert_eq!(answer.status(), 200);
        assert!(!answer.body().is_end_stream());
        let headers = answer.headers();
        let mut names: Vec<_> = headers.keys().map(http::HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["date", "sec-websocket-protocol", "x-own"]);
    });
    let (line, seen) = tells.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(line, (b"GET".to_vec(), b"/ws".to_vec(), true));
    let some = |text: &str| Some(text.to_owned());
    let expected = [
        some("websocket"),
        some("Upgrade"),
        None,
        some("13"),
        some("localhost"),
        some("https://localhost"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_refusal_is_an_ordinary_answer() {
    let handler: Handler = Box::new(|link, event| {
        let Event::Request(mut exchange) = event else { return };
        exchange.begin_response(404);
        exchange.set_response_body(b"none here");
        link.send(Command::Respond(exchange));
    });
    let site =
        ListenerConfig { origins: Some(OriginPolicy::SameHost), ..site(settings(&["localhost"])) };
    let app = App::with(Config::default(), site, handler);
    let mut peer = Peer::new(&app);
    let changed = |name: &str, value: &'static str| -> Vec<(&str, &str)> {
        CONNECT
            .iter()
            .map(|field| if field.0 == name { (field.0, value) } else { *field })
            .collect()
    };
    peer.begin(1, CONNECT);
    assert_eq!((peer.outcome(1), peer.data(1)), (Heard::Status(404), b"none here".to_vec()));
    peer.begin(3, &changed("origin", "https://evil.example"));
    assert_eq!(peer.outcome(3), Heard::Status(403));
    peer.begin(5, &changed(":protocol", "connect-udp"));
    assert_eq!(peer.outcome(5), Heard::Status(501));
    peer.begin(7, &[(":method", "CONNECT"), (":authority", "localhost")]);
    assert_eq!(peer.outcome(7), Heard::Status(400));
    // A CONNECT request without a path, or with a Content-Length, opens no WebSocket.
    peer.begin(9, &changed(":path", ""));
    assert_eq!(peer.outcome(9), Heard::Reset(code::PROTOCOL_ERROR));
    peer.ask(11, GET);
    assert_eq!(peer.outcome(11), Heard::Status(404));
    let reports = app.server.reports();
    assert_eq!((reports.count(Rejection::Origin), reports.count(Rejection::Protocol)), (1, 1));
    assert_eq!(app.requests(), 2);
    wait_until("nothing is held", || app.server.budget().used(Share::Incoming) == 0);
}

#[test]
fn each_way_of_ending_ends_the_stream_alone_and_is_told_once() {
    let app = echoing();
    let mut sockets = Sockets::new(&app);
    // The WebSocket ends by a close frame of the client and of the server.
    sockets.open(1);
    sockets.send(1, &masked_frame(0x88, &[0x03, 0xE8]));
    assert_eq!(sockets.frame(1), Some((0x88, vec![0x03, 0xE8])));
    assert_eq!(sockets.end(1), Some(Ended::Whole));
    assert_eq!(app.await_event("closed"), "closed 1000");
    sockets.open(3);
    sockets.send(3, &masked_frame(0x81, b"close"));
    assert_eq!(sockets.frame(3), Some((0x88, [&[0x0F, 0xA0][..], b"bye"].concat())));
    sockets.send(3, &masked_frame(0x88, &[0x0F, 0xA0]));
    assert_eq!(sockets.end(3), Some(Ended::Whole));
    // The WebSocket ends by a reset, and by an end of the stream without a close frame.
    sockets.open(5);
    sockets.send(5, &masked_frame(0x81, b"a"));
    assert_eq!(sockets.frame(5), Some((0x81, b"a".to_vec())));
    sockets.peer.reset(5);
    sockets.open(7);
    sockets.peer.send(frame(kind::DATA, END_STREAM, 7, b""));
    assert_eq!(sockets.end(7), Some(Ended::Whole));
    // The WebSocket ends because the client violates the protocol.
    sockets.open(9);
    sockets.send(9, &[0x81, 0x01, b'a']);
    assert_eq!(
        sockets.frame(9).map(|(first, payload)| (first, payload[..2].to_vec())),
        Some((0x88, vec![0x03, 0xEA]))
    );
    assert_eq!(sockets.end(9), Some(Ended::Whole));
    let closed = || {
        let log = app.log.lock().unwrap();
        log.iter().filter(|line| line.starts_with("closed")).cloned().collect::<Vec<_>>()
    };
    wait_until("all are told", || closed().len() == 5);
    // The connection serves other streams, and its end ends all WebSockets.
    sockets.peer.ask(11, GET);
    assert_eq!(sockets.peer.outcome(11), Heard::Status(200));
    sockets.open(13);
    sockets.open(15);
    drop(sockets);
    wait_until("those are told as well", || closed().len() == 7);
    assert_eq!(closed()[5..], ["closed 1006", "closed 1006"]);
    wait_until("nothing is left", || app.listener().connections() == 0);
    for share in Share::ALL {
        wait_until("nothing is held", || app.server.budget().used(share) == 0);
    }
}

#[test]
fn what_has_no_window_waits_in_the_queue() {
    let handler: Handler = Box::new(|link, event| {
        let Event::Request(mut exchange) = event else { return };
        let socket = exchange.id();
        if !exchange.is_upgrade() {
            hello(&mut exchange);
            return link.send(Command::Respond(exchange));
        }
        exchange.begin_response(101);
        link.send(Command::Respond(exchange));
        for at in 0..20u8 {
            let payload = Payload::Pooled(vec![at; 50_000]);
            link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
        }
    });
    let app = app_with(Limits::default(), handler);
    let mut sockets = Sockets::with(&app, 0);
    sockets.peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &(WIDE - 65_535).to_be_bytes()));
    sockets.open(1);
    wait_until("it is charged", || app.server.budget().used(Share::Outgoing) >= 900_000);
    // The blocked WebSocket does not delay other streams.
    sockets.peer.ask(3, GET);
    sockets.peer.send(frame(kind::WINDOW_UPDATE, 0, 3, &1000u32.to_be_bytes()));
    assert_eq!(sockets.peer.data(3), b"Hello, World!");
    // All data arrive when the client opens the window by odd amounts.
    for _ in 0..1_000_000 / 30_011 + 2 {
        sockets.peer.send(frame(kind::WINDOW_UPDATE, 0, 1, &30_011u32.to_be_bytes()));
    }
    for at in 0..20u8 {
        assert!(sockets.frame(1) == Some((0x82, vec![at; 50_000])), "{at}");
    }
    wait_until("it is given back", || app.server.budget().used(Share::Outgoing) == 0);
}

#[test]
fn small_messages_that_the_application_does_not_take_are_kept_and_charged() {
    const COUNT: usize = 12_000;
    let (handler, go) = on_command();
    let queue = QueueLimits { ws_max_receive_queue_messages: 1024, ..Default::default() };
    let app =
        App::with(Config { queue, ..Config::default() }, site(settings(&["localhost"])), handler);
    let mut sockets = Sockets::new(&app);
    sockets.open(1);
    // h2 would close the connection if many small frames were left unread, so that the server reads
    // them.
    for at in 0..COUNT {
        sockets.send(1, &masked_frame(0x81, format!("{at:06}").as_bytes()));
    }
    wait_until("they are charged", || app.server.budget().used(Share::Incoming) > 100_000);
    assert!(app.server.budget().used(Share::Incoming) <= 300 << 10);
    go.send(()).unwrap();
    for at in 0..COUNT {
        assert_eq!(sockets.frame(1), Some((0x81, format!("{at:06}").into_bytes())));
    }
    wait_until("it is given back", || app.server.budget().used(Share::Incoming) == 0);
}

#[test]
fn more_than_its_window_is_not_taken_from_who_is_not_read() {
    let (handler, go) = on_command();
    let queue = QueueLimits { ws_max_receive_queue_messages: 1, ..Default::default() };
    let app =
        App::with(Config { queue, ..Config::default() }, site(settings(&["localhost"])), handler);
    let mut sockets = Sockets::new(&app);
    sockets.open(1);
    let message = masked_frame(0x82, &[7; 8000]);
    for _ in 0..100 {
        if !sockets.peer.try_send(frame(kind::DATA, 0, 1, &message)) {
            break;
        }
    }
    assert_eq!(sockets.end(1), Some(Ended::Reset(code::FLOW_CONTROL_ERROR)));
    let _ = go.send(());
    assert_eq!(app.await_event("closed"), "closed 1006");
}

#[test]
fn draining_says_1001_on_each_and_goaway() {
    let mut app = echoing();
    let mut sockets = Sockets::new(&app);
    sockets.open(1);
    sockets.open(3);
    app.listener().drain();
    for stream in [1, 3] {
        assert_eq!(sockets.frame(stream), Some((0x88, vec![0x03, 0xE9])));
        sockets.send(stream, &masked_frame(0x88, &[0x03, 0xE9]));
        assert_eq!(sockets.end(stream), Some(Ended::Whole));
    }
    // The last GOAWAY frame names the last stream that was served.
    loop {
        let heard = sockets.peer.frame().expect("the last GOAWAY");
        if heard.kind == kind::PING {
            sockets.peer.try_send(frame(kind::PING, 1, 0, &heard.payload));
        }
        if heard.kind == kind::GOAWAY && heard.payload[..4] == 3u32.to_be_bytes() {
            assert_eq!(heard.payload[4..8], code::NO_ERROR.to_be_bytes());
            break;
        }
    }
    drop(sockets);
    wait_until("it has gone", || app.listener().connections() == 0);
    app.stop();
}

#[test]
fn stopping_does_not_wait_for_a_peer_that_does_not_close() {
    let limits = Limits { stop_timeout: Duration::from_millis(200), ..Limits::default() };
    let mut app = app_with(limits, echo(hello));
    let mut sockets = Sockets::new(&app);
    sockets.open(1);
    app.stop();
    assert_eq!(sockets.frame(1), Some((0x88, vec![0x03, 0xE9])));
    assert_eq!(app.await_event("closed"), "closed 1006");
}

#[test]
fn a_connection_has_as_many_as_it_may_have_requests() {
    // A busy machine may take so long that the server would send pings.
    let limits = Limits {
        http2_max_concurrent_streams: 30,
        ws_ping_interval: 10 * TEST_TIMEOUT,
        ..Limits::default()
    };
    let app = app_with(limits, echo(hello));
    let mut sockets = Sockets::new(&app);
    let before = app.server.budget().used(Share::Connections);
    let streams: Vec<u32> = (0..30).map(|at| 2 * at + 1).collect();
    for stream in &streams {
        sockets.open(*stream);
    }
    sockets.peer.begin(61, CONNECT);
    assert_eq!(sockets.peer.outcome(61), Heard::Reset(code::REFUSED_STREAM));
    // A WebSocket is charged with less than a request. The bytes that might have arrived before it
    // was accepted are no longer charged.
    assert_eq!(app.server.budget().used(Share::Connections) - before, 30 * (8 << 10));
    assert_eq!((app.server.budget().used(Share::Incoming), app.listener().connections()), (0, 1));
    for round in 0..50u32 {
        for stream in &streams {
            sockets.send(*stream, &masked_frame(0x81, &round.to_be_bytes()));
        }
        for stream in &streams {
            assert_eq!(sockets.frame(*stream), Some((0x81, round.to_be_bytes().to_vec())));
        }
    }
    drop(sockets);
    wait_until("all have gone", || app.server.budget().used(Share::Connections) == 0);
}

#[test]
fn opening_and_resetting_again_and_again_is_work_for_nothing() {
    let app = echoing();
    let mut sockets = Sockets::new(&app);
    for at in 0..2000u32 {
        let stream = 2 * at + 1;
        let opens = crate::support::http2::block(CONNECT);
        let both = [
            frame(kind::HEADERS, crate::support::http2::END_HEADERS, stream, &opens),
            frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes()),
        ];
        if !sockets.peer.try_send(both.concat()) {
            break;
        }
    }
    assert_eq!(sockets.peer.goodbye(), Some(code::ENHANCE_YOUR_CALM));
    assert!(app.requests() < 1500, "{}", app.requests());
    wait_until("nothing is held", || app.server.budget().used(Share::Connections) == 0);
    assert_eq!(app.secure().get("/").status, 200);
}

#[test]
fn messages_are_compressed() {
    let mut rest = echo(hello);
    let handler: Handler = Box::new(move |link, event| match event {
        Event::Request(mut exchange) if exchange.is_upgrade() => {
            exchange.begin_response(101);
            let compression =
                WebSocketCompression { level: 2, threshold: 512, keeps_window: false };
            exchange.response_mut().set_compression(compression);
            link.send(Command::Respond(exchange));
        }
        event => rest(link, event),
    });
    let app = app_with(Limits::default(), handler);
    let mut sockets = Sockets::new(&app);
    sockets.open_with(1, &[("sec-websocket-extensions", "permessage-deflate")]);
    let text = "compress me ".repeat(1000);
    sockets.send(1, &masked_frame(0x81, text.as_bytes()));
    let (first, packed) = sockets.frame(1).unwrap();
    assert_eq!(first, 0xC1);
    assert!(packed.len() < text.len() / 20, "{}", packed.len());
    let inflate = |packed: &[u8]| {
        let whole = [packed, &[0, 0, 0xFF, 0xFF]].concat();
        let mut out = Vec::with_capacity(100_000);
        flate2::Decompress::new(false)
            .decompress_vec(&whole, &mut out, flate2::FlushDecompress::Sync)
            .unwrap();
        out
    };
    assert_eq!(inflate(&packed), text.as_bytes());
    // In the other direction the server decompresses what the client has compressed.
    sockets.send(1, &masked_frame(0xC1, &packed));
    assert_eq!(inflate(&sockets.frame(1).unwrap().1), text.as_bytes());
    // A client that does not negotiate compression gets uncompressed messages.
    sockets.open(3);
    sockets.send(3, &masked_frame(0x81, text.as_bytes()));
    assert_eq!(sockets.frame(3), Some((0x81, text.clone().into_bytes())));
}

#[test]
fn a_peer_of_websockets_alone_may_stand_still_as_over_a_connection_of_its_own() {
    let handler: Handler = Box::new(|link, event| {
        let Event::Request(mut exchange) = event else { return };
        let socket = exchange.id();
        exchange.begin_response(101);
        link.send(Command::Respond(exchange));
        for at in 0..40u8 {
            let payload = Payload::Pooled(vec![at; 200_000]);
            link.send(Command::Send { socket, kind: MessageKind::Binary, payload });
        }
    });
    let app = app_with(Limits::default(), handler);
    let mut sockets = Sockets::new(&app);
    sockets.peer.shrink_receive_buffer();
    sockets.open(1);
    wait_until("the client is behind", || app.server.budget().used(Share::Outgoing) > 0);
    // The minimum rate of responses would require progress within the idle timeout.
    app.advance(4 * Limits::default().idle_timeout);
    let mut message = || loop {
        match sockets.frame(1) {
            // The client gets pings as well.
            Some((0x89, _)) => {}
            other => break other,
        }
    };
    for at in 0..40u8 {
        assert!(message() == Some((0x82, vec![at; 200_000])), "{at}");
    }
}
