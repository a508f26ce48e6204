use super::*;
use crate::protocol::deflate::{DeflateConfig, Deflater, Fin, Takeover};
use crate::protocol::encoder::{encode_control, encode_frame, encode_message};
use crate::protocol::mask::MaskKey;

const KEY: Option<MaskKey> = Some(MaskKey([0x11, 0x22, 0x83, 0xF4]));

fn show(event: &Decoded<'_>) -> String {
    match event {
        Decoded::Text(payload) => {
            format!("text {:?}", std::str::from_utf8(payload.as_bytes()).unwrap())
        }
        Decoded::Binary(payload) => format!("binary {:?}", payload.as_bytes()),
        Decoded::Ping(payload) => format!("ping {payload:?}"),
        Decoded::Pong(payload) => format!("pong {payload:?}"),
        Decoded::Close(reason) => format!("close {reason:?}"),
    }
}

/// Decodes `bytes`, which are split into chunks at the offsets `cuts`. Returns all events, and the
/// protocol violation if there is one.
fn decode(bytes: &[u8], cuts: &[usize], limits: DecoderLimits) -> (Vec<String>, Option<Violation>) {
    decode_with(Decoder::new(Role::Server, limits), bytes, cuts)
}

fn decode_with(
    mut decoder: Decoder,
    bytes: &[u8],
    cuts: &[usize],
) -> (Vec<String>, Option<Violation>) {
    let mut events = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let mut chunk = bytes[start..end].to_vec();
        start = end;
        let mut at = 0;
        while at < chunk.len() {
            match decoder.decode(&mut chunk[at..]) {
                Ok((n, event)) => {
                    events.extend(event.iter().map(show));
                    let is_event = event.is_some();
                    at += n;
                    assert!(is_event || at == chunk.len(), "without an event all is consumed");
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
    crate::protocol::encoder::encode_close(
        &mut out,
        Some(crate::protocol::CloseCode::NORMAL),
        "bye",
        KEY,
    );
    out
}

#[test]
fn every_split_in_three_gives_what_the_whole_gives() {
    let bytes = conversation();
    let (whole, violation) = decode(&bytes, &[], DecoderLimits::default());
    assert_eq!(violation, None);
    assert_eq!(whole.len(), 7);
    assert_eq!(whole[0], "text \"héllo\"");
    assert_eq!(whole[4], "text \"€\"");
    // Miri is some thousand times slower.
    let step = if cfg!(miri) { 41 } else { 1 };
    for a in (0..bytes.len()).step_by(step) {
        for b in (a..bytes.len()).step_by(step) {
            assert_eq!(
                decode(&bytes, &[a, b], DecoderLimits::default()),
                (whole.clone(), None),
                "cut at {a} and {b}"
            );
        }
    }
    let each: Vec<usize> = (1..bytes.len()).collect();
    assert_eq!(decode(&bytes, &each, DecoderLimits::default()), (whole, None), "byte by byte");
}

#[test]
fn violations_are_named_and_refused_before_the_payload() {
    let frame = |opcode, fin, payload: &[u8]| {
        let mut out = Vec::new();
        encode_frame(&mut out, opcode, fin, KEY, payload);
        out
    };
    let small = DecoderLimits { message: 10, fragments: 3 };
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
            [frame(OpCode::Binary, false, &[0; 6]), frame(OpCode::Continuation, true, &[0; 6])]
                .concat(),
            Violation::TooBig,
        ),
        (
            "empty fragments for ever",
            [frame(OpCode::Binary, false, b""), frame(OpCode::Continuation, false, b"").repeat(3)]
                .concat(),
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
    let mut decoder =
        Decoder::new(Role::Server, DecoderLimits { message: u64::MAX, fragments: 10 });
    let mut header = [0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 1, 2, 3];
    assert!(matches!(decoder.decode(&mut header), Ok((17, None))));
    assert!(decoder.assembled.capacity() < 1024);
}

#[test]
fn a_taken_message_is_not_returned_again() {
    let mut out = Vec::new();
    encode_frame(&mut out, OpCode::Binary, false, KEY, b"ab");
    encode_frame(&mut out, OpCode::Continuation, true, KEY, b"c");
    let mut decoder = Decoder::new(Role::Server, DecoderLimits::default());
    let mut twice = [out.clone(), out].concat();
    let half = twice.len() / 2;
    for chunk in twice.chunks_mut(half) {
        let (_, event) = decoder.decode(chunk).unwrap();
        let Some(Decoded::Binary(DecodedPayload::Assembled(bytes))) = event else {
            panic!("a message was sent")
        };
        assert_eq!(std::mem::take(bytes), b"abc");
    }
    assert!(decoder.is_idle());
}

/// Returns the bytes of a conversation for tests: compressed messages, fragments of compressed
/// messages, and uncompressed messages in between.
fn compressed_conversation(takeover: Takeover) -> (Vec<u8>, Vec<String>) {
    let config = DeflateConfig {
        own_takeover: takeover,
        peer_takeover: takeover,
        ..DeflateConfig::default()
    };
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
    let mut out = Vec::new();
    let text = "héllo, héllo, héllo, héllo ";
    encode_message(&mut out, OpCode::Text, Fin::Last, KEY, text.as_bytes(), Some(&mut deflater));
    encode_message(&mut out, OpCode::Text, Fin::Last, KEY, text.as_bytes(), Some(&mut deflater));
    encode_message(
        &mut out,
        OpCode::Text,
        Fin::More,
        KEY,
        &text.as_bytes()[..2],
        Some(&mut deflater),
    );
    encode_control(&mut out, OpCode::Ping, KEY, b"");
    encode_message(&mut out, OpCode::Continuation, Fin::More, KEY, b"", Some(&mut deflater));
    encode_message(
        &mut out,
        OpCode::Continuation,
        Fin::Last,
        KEY,
        &text.as_bytes()[2..],
        Some(&mut deflater),
    );
    encode_frame(&mut out, OpCode::Binary, true, KEY, b"plain");
    encode_message(&mut out, OpCode::Binary, Fin::Last, KEY, &[7; 40], Some(&mut deflater));
    let text = format!("text {text:?}");
    let expected = vec![
        text.clone(),
        text.clone(),
        "ping []".to_owned(),
        text,
        format!("binary {:?}", b"plain"),
        format!("binary {:?}", [7; 40]),
    ];
    (out, expected)
}

#[test]
fn every_split_of_compressed_messages_gives_what_the_whole_gives() {
    for takeover in [Takeover::None, Takeover::Kept] {
        let (bytes, expected) = compressed_conversation(takeover);
        let decoder = || {
            Decoder::with_inflater(Role::Server, DecoderLimits::default(), Inflater::new(takeover))
        };
        assert_eq!(decode_with(decoder(), &bytes, &[]), (expected.clone(), None));
        let cuts = if cfg!(miri) { 0..3 } else { 0..bytes.len() };
        for cut in cuts {
            assert_eq!(
                decode_with(decoder(), &bytes, &[cut]),
                (expected.clone(), None),
                "cut at {cut}"
            );
        }
        let each: Vec<usize> = (1..bytes.len()).collect();
        assert_eq!(decode_with(decoder(), &bytes, &each), (expected, None), "byte by byte");
    }
}

#[test]
fn the_reserved_bit_is_valid_on_a_first_frame_only() {
    let decoder = || {
        Decoder::with_inflater(
            Role::Server,
            DecoderLimits::default(),
            Inflater::new(Takeover::None),
        )
    };
    let continuation = [&[0x01, 0x80, 0, 0, 0, 0][..], &[0xC0, 0x80, 0, 0, 0, 0]].concat();
    assert_eq!(decode_with(decoder(), &continuation, &[]).1, Some(Violation::ReservedBits));
    let ping = [0xC9, 0x80, 0, 0, 0, 0];
    assert_eq!(decode_with(decoder(), &ping, &[]).1, Some(Violation::ReservedBits));
    for bits in [0x20, 0x10] {
        let text = [0xC1 | bits, 0x80, 0, 0, 0, 0];
        assert_eq!(decode_with(decoder(), &text, &[]).1, Some(Violation::ReservedBits));
    }
}

#[test]
fn bad_text_is_found_after_inflation_and_before_the_end() {
    let config = DeflateConfig::default();
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
    let mut out = Vec::new();
    encode_message(&mut out, OpCode::Text, Fin::More, KEY, b"abc\xffdef", Some(&mut deflater));
    let decoder = Decoder::with_inflater(
        Role::Server,
        DecoderLimits::default(),
        Inflater::new(Takeover::None),
    );
    assert_eq!(decode_with(decoder, &out, &[]).1, Some(Violation::Utf8));
}

#[test]
fn a_bomb_in_fragments_is_stopped_by_the_sum() {
    let config = DeflateConfig::default();
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
    let mut out = Vec::new();
    let len = if cfg!(miri) { 600 } else { 60_000 };
    let zeros = vec![0; len as usize];
    encode_message(&mut out, OpCode::Binary, Fin::More, KEY, &zeros, Some(&mut deflater));
    encode_message(&mut out, OpCode::Continuation, Fin::Last, KEY, &zeros, Some(&mut deflater));
    for (limit, expected) in [(2 * len, None), (2 * len - 1, Some(Violation::TooBig))] {
        let limits = DecoderLimits { message: limit, fragments: 10 };
        for mode in [ReadMode::Message, ReadMode::Chunks] {
            let mut decoder =
                Decoder::with_inflater(Role::Server, limits, Inflater::new(Takeover::None));
            let mut bytes = out.clone();
            let mut at = 0;
            let mut violation = None;
            while at < bytes.len() && violation.is_none() {
                match decoder.step(&mut bytes[at..], mode) {
                    Ok((n, _)) => at += n,
                    Err(error) => violation = Some(error),
                }
            }
            assert_eq!(violation, expected, "limit {limit}, {mode:?}");
        }
    }
}

#[test]
fn a_message_is_inflated_in_steps_on_request() {
    const STRIDE: usize = 1000;
    let config = DeflateConfig::default();
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut deflater = Deflater::new(&agreed, Role::Client, &config).unwrap();
    let len = if cfg!(miri) { 5_000 } else { 300_000 };
    let text: Vec<u8> = (0..len).map(|at| b"abc\xC3\xA9"[at % 5]).collect();
    let mut out = Vec::new();
    encode_message(&mut out, OpCode::Text, Fin::More, KEY, &text[..len / 2], Some(&mut deflater));
    encode_control(&mut out, OpCode::Ping, KEY, b"?");
    encode_message(
        &mut out,
        OpCode::Continuation,
        Fin::Last,
        KEY,
        &text[len / 2..],
        Some(&mut deflater),
    );
    encode_message(&mut out, OpCode::Text, Fin::Last, KEY, b"next", None);
    for size in [1, 7, out.len()] {
        let inflater = Inflater::new(Takeover::None).in_steps(STRIDE);
        let mut decoder = Decoder::with_inflater(Role::Server, DecoderLimits::default(), inflater);
        let (mut seen, mut steps) = (Vec::new(), 0);
        for chunk in out.clone().chunks_mut(size) {
            let mut at = 0;
            while at < chunk.len() || decoder.is_stalled() {
                let before = decoder.assembled_mut().len();
                let (n, event) = decoder.decode(&mut chunk[at..]).unwrap();
                at += n;
                match event {
                    Some(Decoded::Text(payload)) => seen.push(payload.as_bytes().to_vec()),
                    Some(Decoded::Ping(payload)) => seen.push(payload.to_vec()),
                    Some(event) => panic!("{event:?}"),
                    None => {}
                }
                if decoder.is_stalled() {
                    steps += 1;
                    let now = decoder.assembled_mut().len();
                    assert!(now <= before + STRIDE, "{now} after {before}");
                    assert!(decoder.capacity() > 48 << 10, "with the inflater");
                }
            }
        }
        assert!(seen == [b"?".to_vec(), text.clone(), b"next".to_vec()], "in chunks of {size}");
        // A few bytes of input yield less than a step.
        assert!(size < out.len() || steps + 10 > len / STRIDE, "{steps}");
    }
}

#[test]
fn chunks_add_up_to_the_message() {
    let (compressed, _) = compressed_conversation(Takeover::Kept);
    for (bytes, takeover) in [(conversation(), None), (compressed, Some(Takeover::Kept))] {
        let decoder = || match takeover {
            None => Decoder::new(Role::Server, DecoderLimits::default()),
            Some(takeover) => Decoder::with_inflater(
                Role::Server,
                DecoderLimits::default(),
                Inflater::new(takeover),
            ),
        };
        let messages = |mode, size| {
            let mut decoder = decoder();
            let mut messages = vec![Vec::new()];
            for chunk in bytes.clone().chunks_mut(size) {
                let mut at = 0;
                while at < chunk.len() {
                    let (n, step) = decoder.step(&mut chunk[at..], mode).unwrap();
                    if let Some(Step { kind: StepKind::Data { is_last, .. }, place }) = step {
                        let bytes = match place {
                            StepBytes::Fed(range) => &chunk[at..][range],
                            place => decoder.kept(&place),
                        };
                        messages.last_mut().unwrap().extend_from_slice(bytes);
                        if is_last {
                            messages.push(Vec::new());
                        }
                    }
                    at += n;
                }
            }
            messages
        };
        let whole = messages(ReadMode::Message, bytes.len());
        for size in if cfg!(miri) { vec![5] } else { vec![1, 2, 3, 5, 17, bytes.len()] } {
            assert_eq!(messages(ReadMode::Chunks, size), whole, "in chunks of {size}");
        }
    }
}

#[test]
fn the_contents_of_a_lent_buffer_are_discarded() {
    let mut decoder = Decoder::new(Role::Client, DecoderLimits::default());
    decoder.lend(b"\xFFnot of this message".to_vec());
    let mut bytes = [0x01, 1, b'o', 0x80, 1, b'k'];
    let (_, event) = decoder.decode(&mut bytes).unwrap();
    assert!(matches!(event, Some(Decoded::Text(payload)) if payload.as_bytes() == b"ok"));
}

#[test]
fn missing_counts_exactly_the_bytes_of_the_message() {
    // A message of two frames with a ping between them, and another message after it.
    let masked = |first: u8, len: u8| {
        [&[first, 0x80 | len, 0, 0, 0, 0][..], &vec![b'a'; len.into()]].concat()
    };
    let message = [masked(0x02, 100), masked(0x89, 3), masked(0x00, 0), masked(0x80, 50)].concat();
    for begun in 1..message.len() {
        let mut bytes = [&message[..], &masked(0x82, 9)].concat();
        let mut decoder = Decoder::new(Role::Server, DecoderLimits::default());
        assert_eq!(decoder.missing(), 0);
        let mut at = begun;
        let mut start = 0;
        let mut found = Vec::new();
        loop {
            while start < at {
                let (n, event) = decoder.decode(&mut bytes[start..at]).unwrap();
                if let Some(Decoded::Binary(payload)) = event {
                    found.push(payload.as_bytes().len());
                }
                start += n;
            }
            if decoder.is_idle() {
                break;
            }
            assert!(decoder.missing() > 0);
            at += usize::try_from(decoder.missing()).unwrap();
        }
        assert_eq!((at, decoder.missing(), &found[..]), (message.len(), 0, &[150][..]), "{begun}");
    }
}
