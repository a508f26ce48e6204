use super::*;
use crate::protocol::{Role, Violation};

fn agreed(takeover: Takeover, bits: u8) -> Agreed {
    let config = DeflateConfig {
        own_takeover: takeover,
        peer_takeover: takeover,
        own_bits: WindowBits::new(bits).unwrap(),
        ..DeflateConfig::default()
    };
    config.choose(b"permessage-deflate; client_max_window_bits").unwrap()
}

fn round_trip(takeover: Takeover, bits: u8, messages: &[&[u8]]) -> usize {
    let mut deflater =
        Deflater::new(&agreed(takeover, bits), Role::Server, &DeflateConfig::default()).unwrap();
    let mut inflater = Inflater::new(takeover);
    let mut total = 0;
    for message in messages {
        let mut compressed = Vec::new();
        deflater.push(message, Fin::Last, &mut compressed);
        total += compressed.len();
        let mut plain = Vec::new();
        // In chunks of seven bytes, as a network may deliver it.
        for chunk in compressed.chunks(7) {
            inflater.push(chunk, &mut plain, message.len() as u64).unwrap();
        }
        inflater.finish(&mut plain, message.len() as u64).unwrap();
        assert_eq!(&plain, message);
    }
    total
}

/// Returns random bytes, which cannot be compressed.
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
fn deflate_round_trips_with_every_window_and_takeover() {
    let text = b"{\"name\":\"value\",\"list\":[1,2,3]} ".repeat(if cfg!(miri) { 20 } else { 2000 });
    let noise = noise(if cfg!(miri) { 500 } else { 100_000 });
    let messages: &[&[u8]] = &[b"Hello", b"", b"Hello", &text, &noise, &text, b"", b"", b"x"];
    for bits in if cfg!(miri) { 15..=15 } else { 9..=15 } {
        let alone = round_trip(Takeover::None, bits, messages);
        let kept = round_trip(Takeover::Kept, bits, messages);
        assert!(alone > 0 && kept <= alone, "takeover saves: {kept} of {alone} at {bits} bits");
    }
}

#[test]
fn the_examples_of_the_rfc() {
    // The examples of RFC 7692, 7.2.3.1 to 7.2.3.6.
    let table: &[(&[u8], &[u8])] = &[
        (&[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], b"Hello"),
        (&[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00], b"Hello"),
        (&[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00], b"Hello"),
        (&[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00], b"Hello"),
        (&[0x00], b""),
    ];
    for (compressed, plain) in table {
        let mut out = Vec::new();
        let mut inflater = Inflater::new(Takeover::None);
        inflater.push(compressed, &mut out, 5).unwrap();
        inflater.finish(&mut out, 5).unwrap();
        assert_eq!(&out, plain, "{compressed:x?}");
    }
    // 7.2.3.2: the second message refers to the first.
    let mut inflater = Inflater::new(Takeover::Kept);
    for compressed in
        [&[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..], &[0xf2, 0x00, 0x11, 0x00, 0x00]]
    {
        let mut out = Vec::new();
        inflater.push(compressed, &mut out, 5).unwrap();
        inflater.finish(&mut out, 5).unwrap();
        assert_eq!(out, b"Hello");
    }
}

#[test]
fn a_bomb_of_1000_to_1_is_stopped_at_its_limit() {
    let mut deflater =
        Deflater::new(&agreed(Takeover::None, 15), Role::Server, &DeflateConfig::default())
            .unwrap();
    let mut bomb = Vec::new();
    let (size, limit) = if cfg!(miri) { (1 << 15, 10_000) } else { (16 << 20, 100_000) };
    deflater.push(&vec![0; size], Fin::Last, &mut bomb);
    assert!(bomb.len() * 200 < size, "{} bytes", bomb.len());
    let mut out = Vec::new();
    let result = Inflater::new(Takeover::None).push(&bomb, &mut out, limit);
    assert_eq!(result, Err(Violation::TooBig));
    assert!(out.capacity() as u64 <= 3 * limit, "{} bytes were reserved", out.capacity());
}

#[test]
fn the_limit_itself_is_allowed() {
    for len in [1, 255, 256, 16 << 10, (16 << 10) + 1] {
        let mut deflater =
            Deflater::new(&agreed(Takeover::None, 15), Role::Server, &DeflateConfig::default())
                .unwrap();
        let mut compressed = Vec::new();
        deflater.push(&vec![b'a'; len], Fin::Last, &mut compressed);
        for (limit, expected) in [(len, Ok(())), (len - 1, Err(Violation::TooBig))] {
            let mut out = Vec::new();
            let mut inflater = Inflater::new(Takeover::None);
            let result = inflater
                .push(&compressed, &mut out, limit as u64)
                .and_then(|()| inflater.finish(&mut out, limit as u64));
            assert_eq!(result, expected, "{len} bytes, limit {limit}");
        }
    }
}

#[test]
fn empty_blocks_inflate_to_nothing() {
    // Each block is empty and marked final, so the next begins a new stream.
    let blocks = [0x03, 0x00].repeat(if cfg!(miri) { 50 } else { 30_000 });
    let mut out = b"before".to_vec();
    let mut inflater = Inflater::new(Takeover::None);
    inflater.push(&blocks, &mut out, 1 << 20).unwrap();
    inflater.finish(&mut out, 1 << 20).unwrap();
    assert_eq!(out, b"before");
}

#[test]
fn invalid_deflate_streams_are_refused() {
    let mut out = Vec::new();
    let mut inflater = Inflater::new(Takeover::None);
    assert_eq!(inflater.push(&[0xff; 32], &mut out, 1000), Err(Violation::Inflate));
}

#[test]
fn a_window_of_eight_bits_is_read_and_not_written() {
    let agreed =
        DeflateConfig::default().choose(b"permessage-deflate; server_max_window_bits=8").unwrap();
    assert!(Deflater::new(&agreed, Role::Server, &DeflateConfig::default()).is_none());
}

#[test]
fn the_first_offer_that_can_be_granted_is_taken() {
    let config = DeflateConfig {
        own_takeover: Takeover::Kept,
        peer_takeover: Takeover::Kept,
        ..DeflateConfig::default()
    };
    let table: &[(&str, Option<&str>)] = &[
        ("permessage-deflate", Some("permessage-deflate")),
        ("x, Permessage-Deflate; client_max_window_bits", Some("permessage-deflate")),
        (
            "permessage-deflate; server_max_window_bits=7, \
             permessage-deflate; server_no_context_takeover",
            Some("permessage-deflate; server_no_context_takeover"),
        ),
        (
            "permessage-deflate; server_max_window_bits=10; client_max_window_bits=\"12\"",
            Some("permessage-deflate; server_max_window_bits=10; client_max_window_bits=12"),
        ),
        ("permessage-deflate; client_no_context_takeover; client_no_context_takeover", None),
        ("permessage-deflate; unknown", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; client_max_window_bits=16", None),
        (";", None),
    ];
    for (offer, answer) in table {
        let agreed = config.choose(offer.as_bytes()).map(|agreed| agreed.to_string());
        assert_eq!(agreed.as_deref(), *answer, "{offer}");
    }
}
