//! Tests of the decoder: the positions of messages in the buffer, the limits of their length, and
//! the steps in which they are decompressed.

use super::*;
use crate::protocol::deflate::{DeflateConfig, Deflater, Fin, Takeover};
use crate::protocol::encode_frame;

const KEY: Option<MaskKey> = Some(MaskKey([0xA1, 7, 0, 0x5C]));

/// Checks the offsets of a message that is more than 4 GiB after the start of a buffer. A former
/// version counted offsets from the start of the buffer in 32 bits. They overflowed, so `as_text()`
/// returned bytes of another frame.
#[cfg(all(feature = "tokio", target_pointer_width = "64"))]
#[test]
fn a_message_past_4_gib_of_a_buffer_has_the_right_offset() {
    let mut bytes = b"\x81\x05hello\x81\x05there".to_vec();
    let mut decoder = Decoder::new(Role::Client, DecoderLimits::default());
    for before in [0, (1 << 32) - 7, (1 << 32) - 3, 1 << 32, 5 << 32] {
        for at in [0, 7] {
            let frame = decoder.decode_whole_frame(&mut bytes[at..]).unwrap();
            let end = before + at + frame.frame_len();
            assert_eq!(frame.range_before(end), before + at + 2..before + at + 7);
        }
    }
}

#[test]
fn a_whole_frame_is_not_copied_whatever_its_length() {
    for role in [Role::Server, Role::Client] {
        let mask = if role == Role::Server { KEY } else { None };
        for len in [0, 1, 125, 126, 65_535, 65_536, 70_000] {
            for opcode in [OpCode::Text, OpCode::Binary] {
                let payload = vec![b'x'; if cfg!(miri) { len % 65_000 } else { len }];
                let mut bytes = Vec::new();
                encode_frame(&mut bytes, opcode, true, mask, &payload);
                bytes.extend_from_slice(b"more");
                let mut decoder = Decoder::new(role, DecoderLimits::default());
                let end = bytes.len() - 4;
                let (n, event) = decoder.decode(&mut bytes).unwrap();
                assert_eq!(n, end);
                let Some(
                    Decoded::Text(DecodedPayload::Fed(fed))
                    | Decoded::Binary(DecodedPayload::Fed(fed)),
                ) = event
                else {
                    panic!("{event:?} of {len} bytes")
                };
                assert_eq!(fed, payload);
                assert_eq!(decoder.capacity(), 0);
            }
        }
    }
}

/// Checks that the last frame of a message is not copied if all frames before it were empty, and
/// that its text is checked in place.
#[test]
fn a_message_whose_first_frames_are_empty_is_checked_in_place() {
    for (text, violation) in [("h\u{e9}llo".as_bytes(), None), (b"\xC3", Some(Violation::Utf8))] {
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, OpCode::Text, false, KEY, b"");
        encode_frame(&mut bytes, OpCode::Continuation, true, KEY, text);
        let mut decoder = Decoder::new(Role::Server, DecoderLimits::default());
        match decoder.decode(&mut bytes) {
            Ok((_, Some(Decoded::Text(DecodedPayload::Fed(fed))))) if violation.is_none() => {
                assert_eq!(fed, text);
            }
            Ok(other) => panic!("{other:?}"),
            Err(found) => assert_eq!(Some(found), violation),
        }
    }
}

/// Returns random bytes and their compressed form, which is longer because random bytes cannot be
/// compressed.
fn noise(len: usize) -> (Vec<u8>, Vec<u8>) {
    let config = DeflateConfig::default().threshold(0);
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let mut state = 12_345_u64;
    let plain: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(len)
    .collect();
    let mut compressed = Vec::new();
    Deflater::new(&agreed, Role::Server, &config).unwrap().push(&plain, Fin::Last, &mut compressed);
    assert!(compressed.len() > len);
    (plain, frame_of(&compressed))
}

/// Returns a compressed message as one frame.
fn frame_of(compressed: &[u8]) -> Vec<u8> {
    let len = compressed.len() as u64;
    let mut bytes = vec![0; MAX_HEADER];
    let header = Header { fin: true, rsv1: true, opcode: OpCode::Binary, mask: None, len };
    let n = header.write(bytes.as_mut_slice().try_into().unwrap());
    bytes.truncate(n);
    bytes.extend_from_slice(compressed);
    bytes
}

fn inflating(message: u64) -> Decoder {
    let limits = DecoderLimits::new().message(message);
    Decoder::with_inflater(Role::Client, limits, Inflater::new(Takeover::None))
}

#[test]
fn the_limit_of_a_compressed_message_is_that_of_its_inflated_bytes() {
    // Decompression is slow under Miri.
    let lengths: &[usize] = if cfg!(miri) { &[1, 100] } else { &[1, 100, 1000, 50_000] };
    for &len in lengths {
        let (plain, bytes) = noise(len);
        for mode in [ReadMode::Message, ReadMode::Chunks, ReadMode::Discard] {
            let mut decoder = inflating(len as u64);
            let (n, step) = decoder.step(&mut bytes.clone(), mode).unwrap();
            assert_eq!(n, bytes.len());
            assert_eq!(step.is_none(), mode == ReadMode::Discard);
            if mode == ReadMode::Message {
                assert_eq!(decoder.kept(&step.unwrap().place), plain);
            }
            let violation = inflating(len as u64 - 1).step(&mut bytes.clone(), mode).unwrap_err();
            assert_eq!(violation, Violation::TooBig, "{len}, {mode:?}");
        }
    }
}

#[test]
fn a_compressed_message_that_inflates_to_nothing_has_an_end() {
    let limit = 1000;
    let most = usize::try_from(compressed_max(limit)).unwrap();
    // The announced length is enough for a refusal.
    for (len, is_allowed) in [(most, true), (most + 1, false)] {
        let mut header = frame_of(&vec![0; len])[..4].to_vec();
        let decoded = inflating(limit).decode(&mut header).map(|(n, event)| (n, event.is_some()));
        assert_eq!(decoded, if is_allowed { Ok((4, false)) } else { Err(Violation::TooBig) });
    }
    // Empty blocks of five bytes each, in frames none of which is too long by itself.
    let mut decoder = inflating(limit);
    let mut frames = 0;
    let violation = loop {
        let mut bytes = frame_of(&b"\x00\x00\x00\xFF\xFF".repeat(20));
        bytes[0] = if frames == 0 { 0x42 } else { 0x00 };
        frames += 1;
        match decoder.decode(&mut bytes) {
            Ok((_, None)) => assert!(frames <= most / 100),
            Ok((_, event)) => panic!("{event:?}"),
            Err(violation) => break violation,
        }
    };
    assert_eq!((violation, frames), (Violation::TooBig, most / 100 + 1));
}

#[test]
fn steps_of_no_bytes_are_steps_of_one() {
    let (plain, bytes) = noise(100);
    let inflater = Inflater::new(Takeover::None).in_steps(0);
    let mut decoder = Decoder::with_inflater(Role::Client, DecoderLimits::default(), inflater);
    let (mut at, mut steps) = (0, 0);
    let mut bytes = bytes;
    let read = loop {
        let (n, event) = decoder.decode(&mut bytes[at..]).unwrap();
        at += n;
        match event {
            Some(Decoded::Binary(payload)) => break payload.as_bytes().to_vec(),
            Some(event) => panic!("{event:?}"),
            None => steps += 1,
        }
        assert!(decoder.is_stalled(), "all bytes are there");
    };
    assert_eq!((read, steps), (plain, 100));
}

#[test]
fn output_beyond_the_limit_is_too_big() {
    let (plain, bytes) = noise(10);
    let compressed = &bytes[2..];
    for (before, limit, expected) in
        [(10, 5, Err(Violation::TooBig)), (5, 14, Err(Violation::TooBig)), (5, 15, Ok(()))]
    {
        let mut inflater = Inflater::new(Takeover::None);
        let mut out = vec![b'.'; before];
        assert_eq!(inflater.push(compressed, &mut out, limit), expected, "{before}, {limit}");
        assert!(out.starts_with(&[b'.'; 10][..before]));
        if expected.is_ok() {
            assert_eq!(out[before..], plain);
        }
    }
}
