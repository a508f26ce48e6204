//! Fuzz targets of the decoder: with differently split input, and compared with tungstenite.

use std::io;

use rookery_websocket::protocol::deflate::{Inflater, Takeover};
use rookery_websocket::protocol::{
    Decoded, DecodedPayload, Decoder, DecoderLimits, Role, Violation,
};
use tungstenite::Message;
use tungstenite::error::{CapacityError, Error, ProtocolError};
use tungstenite::protocol::WebSocketConfig;

const LIMITS: DecoderLimits = DecoderLimits::new().message(10_000).fragments(20);

/// An event, in one form for all decoders.
#[derive(Debug, PartialEq)]
enum Read {
    Text(Vec<u8>),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
}

impl Read {
    fn new(event: &Decoded<'_>) -> Read {
        let bytes = |payload: &DecodedPayload<'_>| payload.as_bytes().to_vec();
        match event {
            Decoded::Text(payload) => Read::Text(bytes(payload)),
            Decoded::Binary(payload) => Read::Binary(bytes(payload)),
            Decoded::Ping(payload) => Read::Ping(payload.to_vec()),
            Decoded::Pong(payload) => Read::Pong(payload.to_vec()),
            Decoded::Close(close) => {
                Read::Close(close.code.map(|code| code.get()), close.reason.to_owned())
            }
        }
    }
}

fn decode(
    mut decoder: Decoder,
    bytes: &[u8],
    mut piece: impl FnMut(usize) -> usize,
) -> (Vec<Read>, Option<Violation>) {
    let mut bytes = bytes.to_vec();
    let mut rest = &mut bytes[..];
    let mut read = Vec::new();
    while !rest.is_empty() {
        let n = piece(rest.len()).clamp(1, rest.len());
        let (mut now, later) = rest.split_at_mut(n);
        rest = later;
        while !now.is_empty() {
            let len = now.len();
            let (n, event) = match decoder.decode(now) {
                Ok(decoded) => decoded,
                Err(violation) => return (read, Some(violation)),
            };
            assert!(event.is_some() || n == len, "without an event all is consumed");
            let is_close = matches!(event, Some(Decoded::Close(_)));
            read.extend(event.iter().map(Read::new));
            if is_close {
                return (read, None);
            }
            now = &mut now[n..];
        }
    }
    (read, None)
}

/// Decodes frames. The first byte of the input selects the role and the extension, and the second
/// one the chunks. All chunks must give the same events as the whole, text must be UTF-8, and the
/// limits must hold.
pub fn websocket_frames(data: &[u8]) {
    let [choice, step, bytes @ ..] = data else { return };
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let decoder = || match choice >> 1 & 3 {
        0 | 1 => Decoder::new(role, LIMITS),
        2 => Decoder::with_inflater(role, LIMITS, Inflater::new(Takeover::None)),
        _ => Decoder::with_inflater(role, LIMITS, Inflater::new(Takeover::Kept)),
    };
    let (whole, violation) = decode(decoder(), bytes, |all| all);
    let (each, each_violation) = decode(decoder(), bytes, |_| 1);
    assert_eq!(whole, each, "byte by byte");
    assert!(
        is_same(violation, each_violation),
        "{violation:?} and {each_violation:?} byte by byte"
    );
    let mut state = usize::from(*step) + 1;
    let (pieces, pieces_violation) = decode(decoder(), bytes, |_| {
        state = state.wrapping_mul(75).wrapping_add(74) % 65_537;
        state % 40
    });
    assert_eq!(whole, pieces, "in pieces");
    assert!(
        is_same(violation, pieces_violation),
        "{violation:?} and {pieces_violation:?} in pieces"
    );
    for read in &whole {
        match read {
            Read::Text(text) => {
                assert!(std::str::from_utf8(text).is_ok());
                assert!(text.len() as u64 <= LIMITS.message);
            }
            Read::Binary(binary) => assert!(binary.len() as u64 <= LIMITS.message),
            Read::Ping(payload) | Read::Pong(payload) => assert!(payload.len() <= 125),
            Read::Close(code, reason) => {
                assert!(reason.len() <= 123);
                assert!(
                    code.is_none_or(|code| matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999))
                );
            }
        }
    }
}

/// Returns true if both results are equal. The error in a compressed message with several errors
/// depends on the chunks.
fn is_same(one: Option<Violation>, other: Option<Violation>) -> bool {
    let is_of_payload = |violation| {
        matches!(violation, Some(Violation::Inflate | Violation::Utf8 | Violation::TooBig))
    };
    one == other || (is_of_payload(one) && is_of_payload(other))
}

/// A stream that returns the bytes and discards what is written.
struct Bytes<'a>(&'a [u8]);

impl io::Read for Bytes<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut self.0, target)
    }
}

impl io::Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compares a server's decoder with tungstenite's: both must read the same messages, and either
/// both or none must fail.
///
/// Known differences are excluded. tungstenite accepts lengths that are not in their shortest form,
/// has no limit of fragments, closes the connection for unknown close codes, which we refuse (it
/// does not know 1014), and checks the reason of a close frame later.
pub fn websocket_differential(data: &[u8]) {
    let limits = DecoderLimits::new().message(10_000).fragments(u32::MAX);
    let (ours, violation) = decode(Decoder::new(Role::Server, limits), data, |all| all);
    if matches!(
        violation,
        Some(Violation::Length | Violation::CloseCode(_) | Violation::ClosePayload)
    ) {
        return;
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(10_000))
        .max_frame_size(Some(10_000))
        .read_buffer_size(512);
    let role = tungstenite::protocol::Role::Server;
    let mut socket = tungstenite::WebSocket::from_raw_socket(Bytes(data), role, Some(config));
    for expected in &ours {
        let theirs = match socket.read() {
            Ok(Message::Text(text)) => Read::Text(text.as_bytes().to_vec()),
            Ok(Message::Binary(bytes)) => Read::Binary(bytes.to_vec()),
            Ok(Message::Ping(bytes)) => Read::Ping(bytes.to_vec()),
            Ok(Message::Pong(bytes)) => Read::Pong(bytes.to_vec()),
            Ok(Message::Close(close)) => {
                let (code, reason) = close.map_or((None, String::new()), |close| {
                    (Some(close.code.into()), close.reason.to_string())
                });
                Read::Close(code, reason)
            }
            Ok(Message::Frame(_)) => panic!("tungstenite shows no frames"),
            Err(error) => panic!("tungstenite fails with {error} where we read {expected:?}"),
        };
        // A code that was registered later (RFC 6455, 11.7).
        if matches!(expected, Read::Close(Some(1014), _)) {
            return;
        }
        assert_eq!(&theirs, expected);
        if matches!(theirs, Read::Close(..)) {
            return;
        }
    }
    let ended = match socket.read() {
        Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) | Err(Error::Io(_)) => {
            None
        }
        other => Some(other),
    };
    match (violation, ended) {
        (None, None) => {}
        // We report an error before a frame, or the message of invalid text, is complete.
        (Some(_), None) => {}
        (Some(Violation::Utf8), Some(Err(Error::Utf8(_)))) => {}
        // A control frame whose long length has a small value, which is not the shortest form.
        (Some(Violation::LongControl), Some(Ok(Message::Ping(bytes) | Message::Pong(bytes))))
            if bytes.len() <= 125 => {}
        (Some(Violation::LongControl), Some(Ok(Message::Close(close))))
            if close.as_ref().is_none_or(|close| close.reason.len() <= 123) => {}
        (
            Some(Violation::TooBig),
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))),
        ) => {}
        (Some(_), Some(Err(Error::Protocol(_) | Error::Capacity(_) | Error::Utf8(_)))) => {}
        (ours, theirs) => panic!("we end with {ours:?}, tungstenite with {theirs:?}"),
    }
}
