//! WebSockets with compressed messages (RFC 7692).

use std::io::Write as _;
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Event, MessageKind, Payload, Share, WebSocketCompression};
use rookery_server::{Config, Limits, ListenerConfig, Rejection};
use rookery_websocket::protocol::deflate::{
    Agreed, DeflateConfig, Deflater, Fin, Inflater, Takeover, WindowBits,
};
use rookery_websocket::protocol::{MaskKey, OpCode, Role, encode_message};

use crate::support::{App, Client, Handler, TEST_TIMEOUT, echo, hello, masked_frame, wait_until};

const PLAIN: WebSocketCompression =
    WebSocketCompression { level: 2, threshold: 512, keeps_window: false };

/// Returns a handler that accepts WebSockets with `compression`, and leaves all other events to
/// `handler`.
pub(crate) fn compressing(compression: WebSocketCompression, mut handler: Handler) -> Handler {
    Box::new(move |link, event| match event {
        Event::Request(mut exchange) if exchange.is_upgrade() => {
            exchange.begin_response(101);
            exchange.response_mut().set_compression(compression);
            link.send(Command::Respond(exchange));
        }
        event => handler(link, event),
    })
}

fn app(limits: Limits, compression: WebSocketCompression) -> App {
    let config = Config { limits, ..Config::default() };
    App::with(config, ListenerConfig::default(), compressing(compression, echo(hello)))
}

/// A client that negotiates compression.
pub(crate) struct Peer {
    client: Client,
    pub(crate) answer: Option<String>,
    deflater: Deflater,
    inflater: Inflater,
}

/// Returns the client's side of what a server with all options negotiates for `offer`.
fn agreed(offer: &str, takeover: Takeover) -> (Agreed, DeflateConfig) {
    let config = DeflateConfig::default().takeover(takeover);
    (config.choose(offer.as_bytes()).unwrap(), config)
}

impl Peer {
    fn open(app: &App, offer: &str) -> Peer {
        Peer::of(app.connect(), offer)
    }

    pub(crate) fn of(mut client: Client, offer: &str) -> Peer {
        client.send(format!(
            "GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\
             Sec-WebSocket-Extensions: {offer}\r\n\r\n"
        ));
        let reply = client.response().unwrap();
        assert_eq!(reply.status, 101);
        let answer = reply.header("sec-websocket-extensions").map(str::to_owned);
        let kept = answer.as_ref().is_some_and(|answer| !answer.contains("no_context_takeover"));
        let takeover = if kept { Takeover::Kept } else { Takeover::None };
        let (agreed, config) = agreed("permessage-deflate", takeover);
        let deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
        Peer { client, answer, deflater, inflater: Inflater::new(takeover) }
    }

    /// Returns a message as it is sent.
    fn encode(&mut self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mask = Some(MaskKey([1, 2, 3, 4]));
        encode_message(
            &mut out,
            OpCode::Binary,
            Fin::Last,
            mask,
            payload,
            Some(&mut self.deflater),
        );
        out
    }

    pub(crate) fn send(&mut self, payload: &[u8]) {
        let bytes = self.encode(payload);
        self.client.send(bytes);
    }

    /// Reads the next message, which may consist of several frames, or the next control frame that
    /// is no ping; a busy machine gives the server the time to send pings. Returns the opcode, the
    /// bytes on the wire if the message was compressed, and the payload.
    pub(crate) fn message(&mut self) -> Option<(u8, Option<usize>, Vec<u8>)> {
        let (mut start, mut payload) = (None, Vec::new());
        loop {
            while self.client.read.is_empty() {
                if !self.client.fill() {
                    return None;
                }
            }
            let first = self.client.read[0];
            let (opcode, part) = self.client.frame()?;
            if opcode == 9 {
                self.client.send(masked_frame(0x8A, &part));
                continue;
            }
            assert_eq!(opcode == 0, start.is_some(), "only later frames are continuations");
            start.get_or_insert((opcode, first & 0x40 != 0));
            payload.extend(part);
            if first & 0x80 != 0 {
                break;
            }
        }
        let (opcode, is_compressed) = start?;
        if !is_compressed {
            return Some((opcode, None, payload));
        }
        let mut plain = Vec::new();
        self.inflater.push(&payload, &mut plain, 1 << 30).unwrap();
        self.inflater.finish(&mut plain, 1 << 30).unwrap();
        Some((opcode, Some(payload.len()), plain))
    }
}

/// Returns text that compresses to about a tenth.
pub(crate) fn text(len: usize) -> Vec<u8> {
    let mut text: Vec<u8> = Vec::with_capacity(len + 40);
    let mut n = 7_u32;
    while text.len() < len {
        n = n.wrapping_mul(1_103_515_245).wrapping_add(12345);
        write!(text, "{{\"name\":\"value\",\"n\":{}}}", n >> 24).unwrap();
    }
    text.truncate(len);
    text
}

/// Returns bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(step).collect()
}

#[test]
fn compressed_messages_of_every_size_come_back_in_order() {
    for keeps_window in [false, true] {
        let app = app(Limits::default(), WebSocketCompression { keeps_window, ..PLAIN });
        let mut peer = Peer::open(&app, "permessage-deflate; client_max_window_bits");
        let answer = peer.answer.clone().unwrap();
        assert_eq!(answer.contains("server_no_context_takeover"), !keeps_window, "{answer}");
        let sizes = [
            0, 1, 511, 512, 4096, 65_535, 65_536, 65_537, 300, 1_000_000, 10, 5_000_000, 600,
            70_000,
        ];
        let messages: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(at, len)| if at % 5 == 4 { noise(*len) } else { text(*len) })
            .collect();
        let bytes: Vec<u8> = messages.iter().flat_map(|message| peer.encode(message)).collect();
        let mut writer = peer.client.socket.try_clone().unwrap();
        // Both sides send much, so that the client has to read meanwhile.
        let writer = std::thread::spawn(move || writer.write_all(&bytes).unwrap());
        for (at, message) in messages.iter().enumerate() {
            let (opcode, compressed, payload) = peer.message().unwrap();
            assert!(
                opcode == 2 && payload == *message,
                "{at}: {} bytes for {}",
                payload.len(),
                message.len()
            );
            let is_worth = message.len() >= 512 && at % 5 != 4;
            assert!(
                !is_worth || compressed.is_some_and(|len| len < message.len() / 2),
                "{at}: {compressed:?}"
            );
            assert!(message.len() >= 512 || compressed.is_none(), "{at}: below the threshold");
        }
        writer.join().unwrap();
        peer.client.send(masked_frame(0x88, &1000u16.to_be_bytes()));
        assert_eq!(peer.message().unwrap().0, 8);
        app.await_event("closed 1000");
    }
}

#[test]
fn what_comes_behind_a_long_message_waits_for_it() {
    let app = App::with(
        Config::default(),
        ListenerConfig::default(),
        compressing(
            PLAIN,
            Box::new(|link, event| {
                let Event::Message { socket, .. } = event else { return };
                for len in [3_000_000, 1, 600, 2_000_000, 70_000, 2] {
                    let payload = Payload::Pooled(text(len));
                    link.send(Command::Send { socket, kind: MessageKind::Text, payload });
                }
                link.send(Command::Close { socket, code: 4000, reason: b"done".to_vec() });
                let payload = Payload::Pooled(b"never".to_vec());
                link.send(Command::Send { socket, kind: MessageKind::Text, payload });
            }),
        ),
    );
    let mut peer = Peer::open(&app, "permessage-deflate");
    peer.send(b"go");
    for len in [3_000_000, 1, 600, 2_000_000, 70_000, 2] {
        let (opcode, _, payload) = peer.message().unwrap();
        assert!(opcode == 1 && payload == text(len), "{len}: {}", payload.len());
    }
    let (opcode, _, payload) = peer.message().unwrap();
    assert_eq!((opcode, &payload[2..]), (8, &b"done"[..]));
    peer.client.send(masked_frame(0x88, &4000u16.to_be_bytes()));
    assert!(peer.message().is_none());
    app.await_event("closed 4000");
}

#[test]
fn a_websocket_that_ends_while_a_message_is_compressed_leaves_nothing() {
    let app = app(Limits::default(), PLAIN);
    for _ in 0..20 {
        let mut peer = Peer::open(&app, "permessage-deflate");
        peer.send(&text(2_000_000));
        peer.send(&text(2_000_000));
        drop(peer);
    }
    let count = || app.log.lock().unwrap().iter().filter(|line| line.starts_with("closed")).count();
    wait_until("all have ended", || count() == 20);
    let budget = app.server.budget();
    wait_until("nothing is charged", || {
        budget.used(Share::Outgoing) == 0 && budget.used(Share::Incoming) == 0
    });
}

#[test]
fn nothing_is_compressed_unless_both_want_it() {
    let mut offers = Vec::new();
    let plain = App::new(Limits::default(), hello);
    offers.push(Peer::open(&plain, "permessage-deflate"));
    let willing = app(Limits::default(), PLAIN);
    offers.push(Peer::open(&willing, "x-webkit-deflate-frame"));
    offers.push(Peer::open(&willing, "permessage-deflate; server_max_window_bits=7"));
    for mut peer in offers {
        assert_eq!(peer.answer, None);
        peer.client.send(masked_frame(0x82, &text(4096)));
        assert_eq!(peer.message(), Some((2, None, text(4096))));
        // The bit RSV1 has no meaning without compression.
        peer.send(&text(4096));
        let (opcode, _, payload) = peer.message().unwrap();
        assert_eq!((opcode, &payload[..2]), (8, &1002u16.to_be_bytes()[..]));
    }
    // zlib cannot compress with a window of 8 bits. The messages of such a client are decompressed,
    // and the client gets uncompressed messages.
    let mut narrow = Peer::open(&willing, "permessage-deflate; server_max_window_bits=8");
    assert!(narrow.answer.as_ref().unwrap().contains("server_max_window_bits=8"));
    narrow.send(&text(100_000));
    assert_eq!(narrow.message(), Some((2, None, text(100_000))));
    assert!(WindowBits::new(8).is_some());
}

/// Returns a compressed message of `len` zeros.
fn bomb(peer: &mut Peer, len: usize) -> Vec<u8> {
    let message = peer.encode(&vec![0; len]);
    assert!(message.len() < len / 500, "{}", message.len());
    message
}

#[test]
fn a_bomb_is_stopped_at_the_limit_of_a_message() {
    let app = app(Limits { ws_max_message_size: 1 << 20, ..Limits::default() }, PLAIN);
    let mut peer = Peer::open(&app, "permessage-deflate");
    peer.send(&vec![0; 1 << 20]);
    assert_eq!(peer.message().unwrap().2.len(), 1 << 20);
    let bomb = bomb(&mut peer, 50 << 20);
    peer.client.send(bomb);
    let (opcode, _, payload) = peer.message().unwrap();
    assert_eq!((opcode, &payload[..2]), (8, &1009u16.to_be_bytes()[..]));
    app.await_event("closed 1006");
    wait_until("nothing is charged", || app.server.budget().used(Share::Incoming) == 0);
}

#[test]
fn what_has_been_inflated_of_messages_is_charged() {
    // The share of what clients send has 6 MiB.
    let limits =
        Limits { max_client_memory: Some(20 << 20), max_connections: 99, ..Limits::default() };
    let app = app(limits, PLAIN);
    let limit = app.server.budget().limit(Share::Incoming);
    let mut slow: Vec<Peer> = (0..6).map(|_| Peer::open(&app, "permessage-deflate")).collect();
    for peer in &mut slow {
        let bomb = bomb(peer, 4 << 20);
        let _ = peer.client.socket.write_all(&bomb[..bomb.len() * 9 / 10]);
    }
    let began = Instant::now();
    while app.server.reports().count(Rejection::Overload) < 4 {
        let used = app.server.budget().used(Share::Incoming);
        // The limit may be exceeded by one step of decompression, which doubles a vector.
        assert!(used <= 2 * limit, "{used}");
        assert!(began.elapsed() < TEST_TIMEOUT, "{:?}", app.server.budget());
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut honest = Peer::open(&app, "permessage-deflate");
    honest.send(&text(300_000));
    assert_eq!(honest.message().unwrap().2.len(), 300_000);
    // A client that has sent the beginning of a message holds a decompressor.
    drop(slow);
    wait_until("nothing is charged", || app.server.budget().used(Share::Incoming) == 0);
    let begun = honest.encode(&text(30_000));
    honest.client.send(&begun[..100]);
    wait_until("the inflater is charged", || app.server.budget().used(Share::Incoming) >= 48 << 10);
}

#[test]
fn others_have_their_turn_while_a_message_is_inflated() {
    let app = app(Limits::default(), PLAIN);
    let mut large = Peer::open(&app, "permessage-deflate");
    let mut small = Peer::open(&app, "permessage-deflate");
    let bomb = bomb(&mut large, 60 << 20);
    large.client.send(bomb);
    small.client.send(masked_frame(0x81, b"here"));
    assert_eq!(small.message(), Some((1, None, b"here".to_vec())));
    assert_eq!(app.await_event("message"), "message 4", "the long one is not through yet");
    app.await_event("message 62914560");
}

#[test]
fn few_windows_are_kept_and_they_are_charged() {
    let limits = Limits { kept_windows: 2, ..Limits::default() };
    let app = app(limits, WebSocketCompression { keeps_window: true, ..PLAIN });
    let is_kept = |peer: &Peer| !peer.answer.as_ref().unwrap().contains("no_context_takeover");
    let mut kept: Vec<Peer> = (0..2).map(|_| Peer::open(&app, "permessage-deflate")).collect();
    assert!(kept.iter().all(is_kept));
    assert_eq!(app.server.budget().used(Share::Outgoing), 1 << 20);
    let mut third = Peer::open(&app, "permessage-deflate");
    assert!(!is_kept(&third));
    let mut sizes = Vec::new();
    for peer in [&mut kept[0], &mut third] {
        for _ in 0..2 {
            peer.send(&text(2000));
            let (_, compressed, payload) = peer.message().unwrap();
            assert_eq!(payload, text(2000));
            sizes.push(compressed.unwrap());
        }
    }
    assert!(sizes[1] < sizes[0] / 4, "refers back: {sizes:?}");
    assert_eq!(sizes[2], sizes[3], "each by itself");
    kept.pop();
    wait_until("a window is free", || app.server.budget().used(Share::Outgoing) == 512 << 10);
    let again = Peer::open(&app, "permessage-deflate");
    assert!(is_kept(&again));
    // A client without context takeover needs no window between messages.
    let offer = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    let used = app.server.budget().used(Share::Outgoing);
    let _plain = Peer::open(&app, offer);
    assert_eq!(app.server.budget().used(Share::Outgoing), used);
}
