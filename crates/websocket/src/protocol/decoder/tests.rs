use super::*;
use crate::protocol::encoder::{encode_control, encode_frame};
use crate::protocol::mask::MaskKey;

const KEY: Option<MaskKey> = Some(MaskKey([0x11, 0x22, 0x83, 0xF4]));

fn show(event: &Event<'_>) -> String {
    match event {
        Event::Text(payload) => format!("text {:?}", std::str::from_utf8(payload.as_bytes()).unwrap()),
        Event::Binary(payload) => format!("binary {:?}", payload.as_bytes()),
        Event::Ping(payload) => format!("ping {payload:?}"),
        Event::Pong(payload) => format!("pong {payload:?}"),
        Event::Close(reason) => format!("close {reason:?}"),
    }
}

/// All events of `bytes`, fed in pieces that end at `cuts`.
fn decode(bytes: &[u8], cuts: &[usize], limits: Limits) -> (Vec<String>, Option<Violation>) {
    let mut decoder = Decoder::new(Role::Server, limits);
    let mut events = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let mut piece = bytes[start..end].to_vec();
        start = end;
        let mut at = 0;
        while at < piece.len() {
            match decoder.decode(&mut piece[at..]) {
                Ok((n, event)) => {
                    events.extend(event.iter().map(show));
                    let is_event = event.is_some();
                    at += n;
                    assert!(is_event || at == piece.len(), "without an event all is consumed");
                }
                Err(violation) => return (events, Some(violation)),
            }
        }
    }
    (events, None)
}

fn conversation() -> Vec<u8> {
    let mut out = Vec::new();
    encode_frame(&mut out, OpCode::Text, true, KEY, "héllo".as_bytes());
    encode_frame(&mut out, OpCode::Text, true, KEY, b"");
    encode_frame(&mut out, OpCode::Binary, false, KEY, &[1, 2, 3]);
    encode_control(&mut out, OpCode::Ping, KEY, b"in between");
    encode_frame(&mut out, OpCode::Continuation, false, KEY, &[]);
    encode_frame(&mut out, OpCode::Continuation, true, KEY, &[4; 130]);
    encode_frame(&mut out, OpCode::Text, false, KEY, &"€".as_bytes()[..1]);
    encode_frame(&mut out, OpCode::Continuation, true, KEY, &"€".as_bytes()[1..]);
    encode_control(&mut out, OpCode::Pong, KEY, b"");
    crate::protocol::encoder::encode_close(&mut out, Some(crate::protocol::CloseCode::NORMAL), "bye", KEY);
    out
}

#[test]
fn every_split_in_three_gives_what_the_whole_gives() {
    let bytes = conversation();
    let (whole, violation) = decode(&bytes, &[], Limits::default());
    assert_eq!(violation, None);
    assert_eq!(whole.len(), 7);
    assert_eq!(whole[0], "text \"héllo\"");
    assert_eq!(whole[4], "text \"€\"");
    for a in 0..bytes.len() {
        for b in a..bytes.len() {
            assert_eq!(
                decode(&bytes, &[a, b], Limits::default()),
                (whole.clone(), None),
                "cut at {a} and {b}"
            );
        }
    }
    let each: Vec<usize> = (1..bytes.len()).collect();
    assert_eq!(decode(&bytes, &each, Limits::default()), (whole, None), "byte by byte");
}

#[test]
fn violations_are_named_and_refused_before_the_payload() {
    let frame = |opcode, fin, payload: &[u8]| {
        let mut out = Vec::new();
        encode_frame(&mut out, opcode, fin, KEY, payload);
        out
    };
    let small = Limits { message: 10, fragments: 3 };
    let table: Vec<(&str, Vec<u8>, Violation)> = vec![
        ("unmasked", vec![0x81, 0x00], Violation::Mask),
        ("compressed without an extension", vec![0xC1, 0x80, 0, 0, 0, 0], Violation::ReservedBits),
        ("orphan", frame(OpCode::Continuation, true, b""), Violation::Continuation),
        (
            "text in text",
            [frame(OpCode::Text, false, b"a"), frame(OpCode::Text, true, b"b")].concat(),
            Violation::Interleaved,
        ),
        ("bad text", frame(OpCode::Text, true, b"\xff"), Violation::Utf8),
        ("cut text", frame(OpCode::Text, true, b"\xc3"), Violation::Utf8),
        (
            "2^63 - 1 bytes announced",
            vec![0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0],
            Violation::TooBig,
        ),
        (
            "fragments past the limit",
            [frame(OpCode::Binary, false, &[0; 6]), frame(OpCode::Continuation, true, &[0; 6])].concat(),
            Violation::TooBig,
        ),
        (
            "empty fragments for ever",
            [frame(OpCode::Binary, false, b""), frame(OpCode::Continuation, false, b"").repeat(3)].concat(),
            Violation::Fragments,
        ),
        ("close of one byte", frame(OpCode::Close, true, b"x"), Violation::ClosePayload),
        ("close 1006", frame(OpCode::Close, true, &[0x03, 0xEE]), Violation::CloseCode(1006)),
    ];
    for (name, bytes, violation) in table {
        assert_eq!(decode(&bytes, &[], small).1, Some(violation), "{name}");
        let each: Vec<usize> = (1..bytes.len()).collect();
        assert_eq!(decode(&bytes, &each, small).1, Some(violation), "{name}, byte by byte");
    }
}

#[test]
fn an_announced_length_reserves_nothing() {
    let mut decoder = Decoder::new(Role::Server, Limits { message: u64::MAX, fragments: 10 });
    let mut header = [0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 1, 2, 3];
    assert!(matches!(decoder.decode(&mut header), Ok((17, None))));
    assert!(decoder.assembled.capacity() < 1024);
}

#[test]
fn a_taken_message_is_not_shown_again() {
    let mut out = Vec::new();
    encode_frame(&mut out, OpCode::Binary, false, KEY, b"ab");
    encode_frame(&mut out, OpCode::Continuation, true, KEY, b"c");
    let mut decoder = Decoder::new(Role::Server, Limits::default());
    let mut twice = [out.clone(), out].concat();
    let half = twice.len() / 2;
    for piece in twice.chunks_mut(half) {
        let (_, event) = decoder.decode(piece).unwrap();
        let Some(Event::Binary(Payload::Assembled(bytes))) = event else { panic!("a message was sent") };
        assert_eq!(std::mem::take(bytes), b"abc");
    }
    assert!(decoder.is_idle());
}
