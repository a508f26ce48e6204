use super::*;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

fn after_preface() -> Frames {
    let mut frames = Frames::new(100);
    frames.follow(&[0; PREFACE as usize], 1);
    frames
}

#[test]
fn head_is_unfinished_from_its_first_byte_to_its_last_frame() {
    let bytes = [
        frame(HEADERS, 0, b"abc"),
        frame(CONTINUATION, 0, b""),
        frame(CONTINUATION, END_HEADERS, b"de"),
    ];
    let all = bytes.concat();
    let mut frames = after_preface();
    assert_eq!(frames.unfinished_since(), None);
    for (at, byte) in all.iter().enumerate() {
        frames.follow(&[*byte], 10 + at as u32);
        frames.take(frames.rewritten().len());
        let expected = (at + 1 < all.len()).then_some(10);
        assert_eq!(frames.unfinished_since(), expected, "after byte {at}");
    }
    // Only the header of a DATA frame has this deadline. Its payload is subject to the stream's
    // minimum rate.
    frames.follow(&frame(DATA, 0, &[0; 100])[..5], 90);
    assert_eq!(frames.unfinished_since(), Some(90));
    frames.follow(&frame(DATA, 0, &[0; 100])[5..50], 91);
    assert_eq!(frames.unfinished_since(), None);
}

#[test]
fn too_many_frames_without_payload_are_a_flood() {
    const PING: u8 = 6;
    let pings = frame(PING, 0, &[0; 8]).repeat(1000);
    let (mut frames, mut sent) = (after_preface(), 0);
    while !frames.is_flood(0) {
        frames.follow(&pings, 1);
        sent += pings.len() as u64;
    }
    assert!((FREE_OVERHEAD * RATIO..FREE_OVERHEAD * RATIO + 50_000).contains(&sent), "{sent}");
    // A payload of one byte in eight is not a flood, in whichever direction it was sent.
    assert!(!frames.is_flood(sent / RATIO));
    frames.follow(&frame(DATA, 0, &vec![0; 1 << 20]), 1);
    assert!(!frames.is_flood(0));
}

/// Passes the client's bytes through the frame filter, one chunk after the other, and returns
/// the bytes that h2 reads.
fn filtered<'a>(frames: &mut Frames, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut filtered = Vec::new();
    for chunk in chunks {
        let kept = frames.follow(chunk, 1);
        filtered.extend_from_slice(&chunk[..kept]);
        filtered.extend_from_slice(frames.rewritten());
        frames.take(frames.rewritten().len());
    }
    filtered
}

/// Splits test input into chunks of the sizes that `size` returns.
fn split(bytes: &[u8], mut size: impl FnMut() -> usize) -> Vec<&[u8]> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (chunk, tail) = rest.split_at(size().clamp(1, rest.len()));
        all.push(chunk);
        rest = tail;
    }
    all
}

#[test]
fn merges_continuation_frames() {
    let small = (0..100u8).map(|at| frame(CONTINUATION, 0, &[at])).collect::<Vec<_>>().concat();
    let all =
        [frame(HEADERS, END_STREAM, b"ab"), small, frame(CONTINUATION, END_HEADERS, b"c")].concat();
    let fields: Vec<u8> = (0..100).chain(*b"c").collect();
    let expected =
        [frame(HEADERS, END_STREAM, b"ab"), frame(CONTINUATION, END_HEADERS, &fields)].concat();
    assert_eq!(filtered(&mut after_preface(), [&all[..]]), expected);
    // All frames but the last are as long as h2 accepts, and no byte is lost.
    for (size, count) in [(9000, 4), (8193, 10), (FRAME as usize, 3), (1, 2 * FRAME as usize)] {
        let large =
            [frame(HEADERS, 0, b"ab"), frame(CONTINUATION, 0, &vec![7; size]).repeat(count)]
                .concat();
        let last = frame(CONTINUATION, END_HEADERS, &[8; 5]);
        let mut frames = after_preface();
        let found = filtered(&mut frames, [&large[..], &last[..]]);
        let fields = [vec![7; size * count], vec![8; 5]].concat();
        let (full, rest) = fields.split_at((fields.len() - 1) / FRAME as usize * FRAME as usize);
        let full = full.chunks(FRAME as usize).flat_map(|chunk| frame(CONTINUATION, 0, chunk));
        let expected =
            [frame(HEADERS, 0, b"ab"), full.collect(), frame(CONTINUATION, END_HEADERS, rest)];
        assert!(found == expected.concat(), "{count} frames of {size} bytes");
        assert_eq!((frames.unfinished_since(), frames.buffered()), (None, 0));
    }
}

#[test]
fn inserts_an_ordinary_field_before_trailers() {
    let head = frame(HEADERS, END_HEADERS, b"head");
    let data = frame(DATA, 0, b"data");
    let next = frame(DATA, END_STREAM, b"of another");
    let marked = |updates: &[u8], fields: &[u8]| {
        let first = frame(HEADERS, END_STREAM, &[updates, MARKER].concat());
        [first, frame(CONTINUATION, END_HEADERS, fields)].concat()
    };
    for (trailers, expected) in [
        (frame(HEADERS, END_HEADERS | END_STREAM, b"abc"), marked(b"", b"abc")),
        (frame(HEADERS, END_HEADERS | END_STREAM | 8, b"\x02abc.."), marked(b"", b"abc")),
        (frame(HEADERS, END_HEADERS | END_STREAM, b"\x20abc"), marked(b"\x20", b"abc")),
        (frame(HEADERS, END_HEADERS | END_STREAM, b""), marked(b"", b"")),
        (
            [frame(HEADERS, END_STREAM, b"ab"), frame(CONTINUATION, END_HEADERS, b"c")].concat(),
            marked(b"", b"abc"),
        ),
        // h2 rejects invalid padding.
        (
            frame(HEADERS, END_HEADERS | END_STREAM | 8, b"\x09abc"),
            frame(HEADERS, END_HEADERS | END_STREAM | 8, b"\x09abc"),
        ),
    ] {
        let all = [&head[..], &data, &trailers, &next].concat();
        let expected = [&head[..], &data, &expected, &next].concat();
        assert_eq!(filtered(&mut after_preface(), [&all[..]]), expected, "{trailers:?}");
        assert_eq!(filtered(&mut after_preface(), split(&all, || 1)), expected, "{trailers:?}");
    }
}

#[test]
fn drops_empty_data_frames_within_an_open_stream() {
    let head = frame(HEADERS, END_HEADERS, b"head");
    let empty = frame(DATA, 0, b"");
    let data = frame(DATA, 0, b"data");
    let padded = frame(DATA, PADDED, b"\x01.");
    let end = frame(DATA, END_STREAM, b"");
    let all =
        [&head, &empty, &empty, &data, &empty, &padded, &end, &empty].map(|it| &it[..]).concat();
    let expected = [&head, &data, &padded, &end, &empty].map(|it| &it[..]).concat();
    assert_eq!(filtered(&mut after_preface(), [&all[..]]), expected);
    assert_eq!(filtered(&mut after_preface(), split(&all, || 1)), expected);
    // h2 detects that a frame interrupts a header block.
    let all = [frame(HEADERS, 0, b"head"), empty].concat();
    assert_eq!(filtered(&mut after_preface(), [&all[..]]), all);
}

#[test]
fn passes_on_heads_for_closed_streams_unchanged() {
    let (whole, half) = (END_HEADERS | END_STREAM, END_HEADERS);
    let again = frame(HEADERS, whole, b"again");
    for before in [
        frame(HEADERS, whole, b"ab"),
        [frame(HEADERS, half, b"ab"), frame(DATA, END_STREAM, b"data")].concat(),
        [frame(HEADERS, half, b"ab"), frame(RST_STREAM, 0, &[0; 4])].concat(),
    ] {
        let all = [&before[..], &again, &again].concat();
        assert_eq!(filtered(&mut after_preface(), split(&all, || 4)), all);
    }
    // A stream has only one set of trailers.
    let all = [frame(HEADERS, half, b"ab"), again.clone(), again.clone()].concat();
    assert!(filtered(&mut after_preface(), [&all[..]]).ends_with(&again));
    // The number of tracked streams is limited.
    let mut frames = after_preface();
    for stream in 0..3000u32 {
        let mut head = frame(HEADERS, half, b"");
        head[5..].copy_from_slice(&(2 * stream + 1).to_be_bytes());
        frames.follow(&head, 1);
    }
    assert_eq!(frames.open.len(), 100 + MAX_EXTRA_OPEN);
}

#[test]
fn tracks_an_open_stream_while_thousands_are_closed() {
    let mut frames = after_preface();
    frames.follow(&frame(HEADERS, END_HEADERS, b"head"), 1);
    for stream in 1..5000u32 {
        let mut head = frame(HEADERS, END_HEADERS, b"ab");
        head[5..9].copy_from_slice(&(2 * stream + 1).to_be_bytes());
        frames.follow(&head, 1);
        frames.close(2 * stream + 1);
    }
    assert_eq!(frames.open, [1]);
    // The next HEADERS frame of the stream contains trailers.
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, b"abc");
    assert!(
        filtered(&mut frames, [&trailers[..]]).windows(MARKER.len()).any(|part| part == MARKER)
    );
}

#[test]
fn passes_on_frames_that_interrupt_a_head_unchanged() {
    for stray in [frame(DATA, 0, b"data"), frame(6, 0, &[0; 8]), frame(HEADERS, END_HEADERS, b"ab")]
    {
        let all = [frame(HEADERS, 0, b"ab"), frame(CONTINUATION, 0, b"cd"), stray].concat();
        assert_eq!(filtered(&mut after_preface(), split(&all, || 5)), all);
    }
    // A frame of another stream.
    let mut other = frame(CONTINUATION, END_HEADERS, b"ef");
    other[8] = 3;
    let all = [frame(HEADERS, 0, b"ab"), frame(CONTINUATION, 0, b"cd"), other].concat();
    assert_eq!(filtered(&mut after_preface(), [&all[..]]), all);
}

#[test]
fn too_many_empty_continuation_frames_are_a_flood() {
    let mut frames = after_preface();
    frames.follow(&frame(HEADERS, 0, b"ab"), 1);
    frames.follow(&frame(CONTINUATION, 0, b"").repeat(MAX_EMPTY as usize), 1);
    assert!(!frames.is_flood(0));
    frames.follow(&frame(CONTINUATION, 0, b""), 1);
    assert!(frames.is_flood(0));
}

/// Checks that h2 gets the same bytes, however the client's frames are split into chunks.
#[test]
fn output_does_not_depend_on_how_the_input_is_split() {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    for _ in 0..200 {
        let mut all = Vec::new();
        for _ in 0..=random(12) {
            let kind = [DATA, HEADERS, CONTINUATION, CONTINUATION, 6][random(5)];
            let flags = [0, END_STREAM, END_HEADERS, END_HEADERS | END_STREAM, 8, 0x2C][random(6)];
            let len = [0, 1, 7, 300, 9000, FRAME as usize, FRAME as usize + 1][random(7)];
            let mut frame_bytes = frame(kind, flags, &vec![kind; len]);
            frame_bytes[8] = [1, 1, 1, 3][random(4)];
            all.extend(frame_bytes);
        }
        let mut whole = after_preface();
        let expected = filtered(&mut whole, [&all[..]]);
        for largest in [3, 20, 9000, 40_000] {
            let mut frames = after_preface();
            let found = filtered(&mut frames, split(&all, || 1 + random(largest)));
            assert_eq!(found, expected);
            assert_eq!((frames.received, frames.payload), (whole.received, whole.payload));
            assert_eq!(frames.is_flood(0), whole.is_flood(0));
        }
    }
}
