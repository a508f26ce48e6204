//! A filter for the frames that a client sends on an HTTP/2 connection, between the socket and the
//! h2 library.
//!
//! [`Frames`] measures two things that h2 does not report: for how long a header block has been
//! incomplete, and what proportion of the received bytes is payload. It also changes three kinds of
//! frames that h2 does not handle as RFC 9113 requires:
//!
//! - CONTINUATION frames (6.10) are merged into frames of [`FRAME`] bytes. A client may split a
//!   header block into any number of CONTINUATION frames, but h2 closes the connection after five,
//!   whatever their size.
//! - An ordinary field is inserted in front of trailers. Trailers must not contain pseudo-header
//!   fields (8.1), but h2 detects them only if an ordinary field precedes them (8.3). The
//!   application never sees the inserted field, because the server drops all trailers.
//! - Empty DATA frames that do not end their stream are dropped. They mean nothing (6.1), but h2
//!   closes a connection on which 101 of them have arrived, however long it has been open. They
//!   still count as frames without payload.

use std::collections::VecDeque;

use super::frame_header::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADER, HEADERS, PADDED, PUSH_PROMISE,
    RST_STREAM,
};
use super::header_table::HeaderTable;
use super::trailers::{self, HeldTrailers, MARKER};

/// The length of a client's connection preface in bytes (RFC 9113, 3.4).
const PREFACE: u32 = 24;

/// The maximum payload of an HTTP/2 frame in bytes, in each direction. A larger maximum would let
/// one stream block the others for longer.
pub(super) const FRAME: u32 = 16 << 10;

/// The number of payload bytes that every connection is credited with when [`RATIO`] is checked.
/// Without this allowance, days of pings and window updates on an idle connection would count as a
/// flood.
const FREE_OVERHEAD: u64 = 1 << 20;

/// The maximum number of bytes that a client may send for each byte of payload that either side
/// sends. A client that sends more floods the connection with frames. nginx uses the same ratio.
const RATIO: u64 = 8;

/// The bytes that h2 holds at most for an unended header block, in addition to its read buffer: the
/// fields that it has decoded, in a table of up to 2,048 fields, and a field that is incomplete.
const UNENDED_BYTES: usize = 480 << 10;

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
    /// The number of HEADERS frames that have begun in the current poll of h2.
    heads_in_poll: usize,
    data_in_poll: usize,
    header_table: HeaderTable,
    /// The trailers that h2 holds.
    pub(super) held_trailers: HeldTrailers,
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
            heads_in_poll: 0,
            data_in_poll: 0,
            header_table: HeaderTable::default(),
            held_trailers: HeldTrailers::default(),
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

    /// Begins a poll of h2, in which the client's frames are filtered and processed.
    pub(super) fn begin_poll(&mut self) {
        (self.heads_in_poll, self.data_in_poll) = (0, 0);
    }

    /// Returns the number of HEADERS frames that have begun in the current poll of h2, and the
    /// number of HEADERS and DATA frames.
    pub(super) fn counts_in_poll(&self) -> (usize, usize) {
        (self.heads_in_poll, self.heads_in_poll + self.data_in_poll)
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
                if self.header_table.wants_payload() {
                    self.header_table.read(&bytes[at..end]);
                }
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
        let (kind, flags, stream) = frame_header::parse(header);
        self.left = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        self.header_table.begin_frame(kind, flags, stream, self.left as usize);
        // Padding counts for the flow-control window, so h2 must see it.
        let is_nothing = kind == DATA && self.left == 0 && flags & (END_STREAM | PADDED) == 0;
        if is_nothing && self.is_within_open(stream) {
            return;
        }
        self.is_data = kind == DATA;
        self.heads_in_poll += usize::from(kind == HEADERS);
        self.data_in_poll += usize::from(kind == DATA);
        if matches!(kind, DATA | HEADERS | CONTINUATION) {
            self.payload += u64::from(self.left);
        }
        let is_continuation = kind == CONTINUATION && self.head == Some(stream);
        let is_trailers = kind == HEADERS && self.is_within_open(stream);
        if (is_continuation || is_trailers) && self.left <= FRAME {
            if is_trailers {
                self.held_trailers.begin(stream, self.left as usize);
            } else {
                self.held_trailers.extend(stream, self.left as usize);
            }
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
            CONTINUATION | PUSH_PROMISE => self.begin_head(flags, stream),
            DATA if flags & END_STREAM != 0 => self.close(stream),
            RST_STREAM => self.close(stream),
            _ => {}
        }
        self.pass(at, &header, kept);
    }

    /// Returns true if a frame of this stream belongs to an open stream, and interrupts no header
    /// block.
    fn is_within_open(&self, stream: u32) -> bool {
        self.head.is_none() && self.open.contains(&stream)
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

    /// Records that the server has ended a stream, so that h2 holds nothing for it any more.
    pub(super) fn end_stream(&mut self, stream: u32) {
        self.close(stream);
        self.held_trailers.end(stream);
    }

    /// Removes the id of an HTTP/2 stream that the client or the server has ended.
    fn close(&mut self, stream: u32) {
        if let Some(at) = self.open.iter().position(|open| *open == stream) {
            self.open.remove(at);
        }
    }

    /// Ends an HTTP/2 frame whose payload was collected. If the frame ends its header block, passes
    /// the rewritten header block to h2.
    fn end_collected(&mut self) {
        self.is_collected = false;
        let (kind, flags, stream) = frame_header::parse(self.header);
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
        let (_, _, stream) = frame_header::parse(self.header);
        while self.block.len() + bytes.len() > FRAME as usize {
            let (fits, rest) = bytes.split_at(FRAME as usize - self.block.len());
            self.block.extend_from_slice(fits);
            self.emit_block(0, stream);
            bytes = rest;
        }
        self.block.extend_from_slice(bytes);
    }

    fn emit_block(&mut self, flags: u8, stream: u32) {
        self.header_table.on_continuation();
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

    /// Returns the number of bytes of memory that the filter uses for rewritten frames, and that h2
    /// may hold for an unended header block and for its header table.
    pub(super) fn held(&self) -> usize {
        let unended = if self.head.is_some() { UNENDED_BYTES } else { 0 };
        self.buffered() + unended + self.header_table.held()
    }

    fn buffered(&self) -> usize {
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
mod tests;
