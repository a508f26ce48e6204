//! A filter for the frames that a client sends on an HTTP/2 connection, between the socket and the
//! h2 library.
//!
//! [`Frames`] measures two things that h2 does not report: for how long a header block has been
//! incomplete, and what proportion of the received bytes is payload. It also rewrites two kinds of
//! frames that h2 does not handle as RFC 9113 requires:
//!
//! - CONTINUATION frames (6.10) are merged into frames of [`FRAME`] bytes. A client may split a
//!   header block into any number of CONTINUATION frames, but h2 closes the connection after five,
//!   whatever their size.
//! - An ordinary field is inserted in front of trailers. Trailers must not contain pseudo-header
//!   fields (8.1), but h2 detects them only if an ordinary field precedes them (8.3). The
//!   application never sees the inserted field, because the server drops all trailers.

use std::collections::VecDeque;

use super::trailers::{self, MARKER};

/// The length of a client's connection preface in bytes (RFC 9113, 3.4).
const PREFACE: u32 = 24;

/// The length of a frame header in bytes (RFC 9113, 4.1).
const HEADER: usize = 9;

/// The maximum payload of an HTTP/2 frame in bytes, in each direction. A larger maximum would let
/// one stream block the others for longer.
pub(super) const FRAME: u32 = 16 << 10;

/// The type of an HTTP/2 DATA frame (RFC 9113, 6.1).
const DATA: u8 = 0;
/// The type of an HTTP/2 HEADERS frame (RFC 9113, 6.2).
const HEADERS: u8 = 1;
/// The type of an HTTP/2 `RST_STREAM` frame (RFC 9113, 6.4).
const RST_STREAM: u8 = 3;
/// The type of an HTTP/2 CONTINUATION frame (RFC 9113, 6.10).
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The number of payload bytes that every connection is credited with when [`RATIO`] is checked.
/// Without this allowance, days of pings and window updates on an idle connection would count as a
/// flood.
const FREE_OVERHEAD: u64 = 1 << 20;

/// The maximum number of bytes that a client may send for each byte of payload that either side
/// sends. A client that sends more floods the connection with frames. nginx uses the same ratio.
const RATIO: u64 = 8;

/// The maximum number of empty CONTINUATION frames in a header block.
const MAX_EMPTY: u32 = 16;

/// The number of stream ids that [`Frames`] keeps in addition to the maximum number of concurrent
/// streams. They are needed because [`Frames`] learns late that h2 has reset a stream.
const MAX_EXTRA_OPEN: usize = 1024;

/// A filter for the frames that a client sends on an HTTP/2 connection. It detects floods, and
/// rewrites frames that h2 would treat incorrectly.
#[derive(Debug)]
pub(super) struct Frames {
    header: [u8; HEADER],
    /// The number of bytes that have arrived of the current frame's header. These bytes are not
    /// passed to h2 until the header is complete.
    filled: usize,
    /// The number of payload bytes of the current frame that have not arrived yet.
    left: u32,
    is_data: bool,
    /// True if the filter collects the payload of the current frame in `block` in order to rewrite
    /// it.
    is_collected: bool,
    /// The id of the stream whose header block is incomplete, so that a CONTINUATION frame must
    /// follow.
    head: Option<u32>,
    /// The ids of the streams that the client has opened and that neither side has ended. A HEADERS
    /// frame for one of them contains trailers.
    open: VecDeque<u32>,
    /// The maximum number of stream ids in `open`.
    max_open: usize,
    /// The part of a header block that the filter has collected but not passed to h2 yet, or the
    /// payload of trailers.
    block: Vec<u8>,
    /// The rewritten bytes for h2. h2 reads them after the beginning of the input, which is passed
    /// unchanged.
    out: Vec<u8>,
    /// The number of bytes of `out` that h2 has already read.
    taken: usize,
    /// The number of empty CONTINUATION frames that the current header block contains so far.
    empty: u32,
    /// The clock tick in which the unfinished frame or header block began.
    unfinished_since: u32,
    received: u64,
    payload: u64,
}

impl Frames {
    /// Creates the frame filter of a new HTTP/2 connection that allows at most `streams` concurrent
    /// streams.
    pub(super) fn new(streams: usize) -> Frames {
        Frames {
            header: [0; HEADER],
            filled: 0,
            left: PREFACE,
            is_data: false,
            is_collected: false,
            head: None,
            open: VecDeque::new(),
            max_open: streams.saturating_add(MAX_EXTRA_OPEN),
            block: Vec::new(),
            out: Vec::new(),
            taken: 0,
            empty: 0,
            unfinished_since: 0,
            received: 0,
            payload: 0,
        }
    }

    /// Filters bytes from the client before h2 (the HTTP/2 library) reads them. `now` is the
    /// current clock tick. Returns the number of bytes at the beginning of `bytes` that are passed
    /// unchanged. All later bytes are replaced by [`rewritten`](Self::rewritten), which the caller
    /// must take before the next call.
    pub(super) fn follow(&mut self, bytes: &[u8], now: u32) -> usize {
        self.received += bytes.len() as u64;
        let (mut at, mut kept) = (0, 0);
        while at < bytes.len() {
            if self.left > 0 {
                let end = bytes.len().min(at + self.left as usize);
                self.left -= (end - at) as u32;
                if self.is_collected {
                    self.collect(&bytes[at..end]);
                    if self.left == 0 {
                        self.end_collected();
                    }
                } else {
                    self.pass(Some(at), &bytes[at..end], &mut kept);
                }
                at = end;
                continue;
            }
            if self.filled == 0 && self.head.is_none() {
                self.unfinished_since = now;
            }
            let end = bytes.len().min(at + HEADER - self.filled);
            self.header[self.filled..self.filled + end - at].copy_from_slice(&bytes[at..end]);
            self.filled += end - at;
            at = end;
            if self.filled == HEADER {
                self.filled = 0;
                self.begin(at.checked_sub(HEADER), &mut kept);
            }
        }
        kept
    }

    /// Appends `bytes` to what h2 reads: first the `kept` bytes at the start of the input, and then
    /// `out`. `at` is the offset of `bytes` in the input, or `None` if `bytes` come from elsewhere.
    /// If `bytes` follow the first `kept` bytes directly, only `kept` grows. Otherwise `bytes` are
    /// copied to `out`.
    fn pass(&mut self, at: Option<usize>, bytes: &[u8], kept: &mut usize) {
        if at == Some(*kept) && self.out.is_empty() {
            *kept += bytes.len();
        } else {
            self.out.extend_from_slice(bytes);
        }
    }

    /// Begins to process an HTTP/2 frame whose header is complete. `at` is the offset of the header
    /// in the input, or `None` if a part of the header arrived earlier. `kept` is the number of
    /// input bytes that are passed to h2 unchanged so far.
    fn begin(&mut self, at: Option<usize>, kept: &mut usize) {
        let header = self.header;
        let (kind, flags, stream) = parse_header(header);
        self.left = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        self.is_data = kind == DATA;
        if matches!(kind, DATA | HEADERS | CONTINUATION) {
            self.payload += u64::from(self.left);
        }
        let is_continuation = kind == CONTINUATION && self.head == Some(stream);
        let is_trailers = kind == HEADERS && self.head.is_none() && self.open.contains(&stream);
        if (is_continuation || is_trailers) && self.left <= FRAME {
            self.empty += u32::from(self.left == 0);
            self.is_collected = self.left > 0;
            if self.left == 0 {
                self.end_collected();
            }
            return;
        }
        if let (Some(head), false) = (self.head, self.block.is_empty()) {
            // This frame is not allowed here. h2 detects that the header block before it is
            // incomplete.
            self.emit_block(0, head);
        }
        match kind {
            HEADERS => {
                self.begin_head(flags, stream);
                if flags & END_STREAM == 0 {
                    self.open(stream);
                }
            }
            CONTINUATION => self.begin_head(flags, stream),
            DATA if flags & END_STREAM != 0 => self.close(stream),
            RST_STREAM => self.close(stream),
            _ => {}
        }
        self.pass(at, &header, kept);
    }

    /// Records a HEADERS or CONTINUATION frame of a header block. The flag `END_HEADERS` tells
    /// whether the frame ends the block.
    fn begin_head(&mut self, flags: u8, stream: u32) {
        self.head = (flags & END_HEADERS == 0).then_some(stream);
        if self.empty <= MAX_EMPTY {
            self.empty = 0;
        }
    }

    /// Records that the client has opened the HTTP/2 stream with this id.
    fn open(&mut self, stream: u32) {
        if self.open.len() == self.max_open {
            self.open.pop_front();
        }
        self.open.push_back(stream);
    }

    /// Removes the id of an HTTP/2 stream that the client or the server has ended.
    pub(super) fn close(&mut self, stream: u32) {
        if let Some(at) = self.open.iter().position(|open| *open == stream) {
            self.open.remove(at);
        }
    }

    /// Ends an HTTP/2 frame whose payload was collected. If the frame ends its header block, passes
    /// the rewritten header block to h2.
    fn end_collected(&mut self) {
        self.is_collected = false;
        let (kind, flags, stream) = parse_header(self.header);
        if kind == HEADERS {
            self.begin_head(flags, stream);
            if flags & END_STREAM != 0 {
                self.close(stream);
            }
            let payload = std::mem::take(&mut self.block);
            let Some(fields) = trailers::fields(flags, &payload) else {
                // The padding is invalid, which h2 detects as well.
                return self.emit(HEADERS, flags, stream, &[&payload]);
            };
            // Table size updates must precede the first field.
            let (updates, rest) = fields.split_at(trailers::updates(fields));
            self.emit(HEADERS, flags & END_STREAM, stream, &[updates, MARKER]);
            self.block.extend_from_slice(rest);
        }
        if flags & END_HEADERS != 0 {
            self.head = None;
            self.emit_block(END_HEADERS, stream);
        }
    }

    /// Appends `bytes` to the collected part of a header block, and passes full frames to h2. h2
    /// thus gets as few frames as possible, even if the client splits the header block into many.
    fn collect(&mut self, mut bytes: &[u8]) {
        let (_, _, stream) = parse_header(self.header);
        while self.block.len() + bytes.len() > FRAME as usize {
            let (fits, rest) = bytes.split_at(FRAME as usize - self.block.len());
            self.block.extend_from_slice(fits);
            self.emit_block(0, stream);
            bytes = rest;
        }
        self.block.extend_from_slice(bytes);
    }

    fn emit_block(&mut self, flags: u8, stream: u32) {
        let block = std::mem::take(&mut self.block);
        self.emit(CONTINUATION, flags, stream, &[&block]);
    }

    fn emit(&mut self, kind: u8, flags: u8, stream: u32, payload: &[&[u8]]) {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let [_, len @ ..] = (len as u32).to_be_bytes();
        self.out.extend_from_slice(&len);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        for part in payload {
            self.out.extend_from_slice(part);
        }
    }

    /// Returns the rewritten bytes for h2. h2 reads them after the beginning of the input, which
    /// [`follow`](Self::follow) has passed unchanged.
    pub(super) fn rewritten(&self) -> &[u8] {
        &self.out[self.taken..]
    }

    /// Removes the first `len` bytes of [`rewritten`](Self::rewritten) after h2 has read them.
    pub(super) fn take(&mut self, len: usize) {
        self.taken += len;
        if self.taken == self.out.len() {
            (self.out, self.taken) = (Vec::new(), 0);
        }
    }

    /// Returns the number of bytes of memory that the filter uses for rewritten frames.
    pub(super) fn held(&self) -> usize {
        self.block.capacity() + self.out.capacity()
    }

    /// Returns the clock tick in which the unfinished header block or frame began, if there is one.
    /// An unfinished DATA frame does not count.
    pub(super) fn unfinished_since(&self) -> Option<u32> {
        let is_unfinished =
            self.head.is_some() || self.filled > 0 || (self.left > 0 && !self.is_data);
        is_unfinished.then_some(self.unfinished_since)
    }

    /// Returns true if the client floods the connection with frames that contain almost no payload.
    /// `sent` is the number of bytes of response DATA, which count as payload too.
    pub(super) fn is_flood(&self, sent: u64) -> bool {
        self.empty > MAX_EMPTY || self.received / RATIO > self.payload + sent + FREE_OVERHEAD
    }
}

/// Returns the type, the flags and the stream id from a frame header. The reserved first bit of the
/// stream id is cleared.
fn parse_header(header: [u8; HEADER]) -> (u8, u8, u32) {
    let [_, _, _, kind, flags, stream @ ..] = header;
    (kind, flags, u32::from_be_bytes(stream) & (u32::MAX >> 1))
}

/// Filters the frames in `bytes`, which arrive in chunks of `size` bytes after a client's
/// connection preface, and returns what h2 reads. Used by the fuzzer.
#[doc(hidden)]
pub fn frames_for_fuzzer(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut frames = Frames::new(100);
    frames.follow(&[0; PREFACE as usize], 1);
    let mut filtered = Vec::new();
    for chunk in bytes.chunks(size.max(1)) {
        let kept = frames.follow(chunk, 1);
        filtered.extend_from_slice(&chunk[..kept]);
        filtered.extend_from_slice(frames.rewritten());
        frames.take(frames.rewritten().len());
    }
    filtered
}

#[cfg(test)]
mod tests {
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
            [frame(HEADERS, END_STREAM, b"ab"), small, frame(CONTINUATION, END_HEADERS, b"c")]
                .concat();
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
            let (full, rest) =
                fields.split_at((fields.len() - 1) / FRAME as usize * FRAME as usize);
            let full = full.chunks(FRAME as usize).flat_map(|chunk| frame(CONTINUATION, 0, chunk));
            let expected =
                [frame(HEADERS, 0, b"ab"), full.collect(), frame(CONTINUATION, END_HEADERS, rest)];
            assert!(found == expected.concat(), "{count} frames of {size} bytes");
            assert_eq!((frames.unfinished_since(), frames.held()), (None, 0));
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
                [frame(HEADERS, END_STREAM, b"ab"), frame(CONTINUATION, END_HEADERS, b"c")]
                    .concat(),
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
        for stray in
            [frame(DATA, 0, b"data"), frame(6, 0, &[0; 8]), frame(HEADERS, END_HEADERS, b"ab")]
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
                let flags =
                    [0, END_STREAM, END_HEADERS, END_HEADERS | END_STREAM, 8, 0x2C][random(6)];
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
}
