//! What h2 does not tell of the frames that come: how long an unfinished head has been on its way, and whether what comes is mostly
//! frames that carry nothing.

/// Bytes of what a client says first (RFC 9113, 3.4).
const PREFACE: u32 = 24;

/// Bytes of a frame's header (RFC 9113, 4.1).
const HEADER: usize = 9;

/// Types of frames that carry something (RFC 9113, 6.1, 6.2, 6.10).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 4;

/// Bytes that may come in frames that carry nothing, before their ratio counts: pings and window updates of days.
const FREE: u64 = 1 << 20;

/// Past that, one byte in so many has to be payload, one way or the other. nginx has the same.
const RATIO: u64 = 8;

/// Follows the frames of a connection as they are read. Costs a few comparisons a frame, and looks into none.
#[derive(Debug)]
pub(super) struct Frames {
    header: [u8; HEADER],
    /// Bytes of the header so far, and of what the frame has yet.
    filled: usize,
    left: u32,
    is_data: bool,
    /// Whether a head has begun and not ended: CONTINUATION has to follow.
    is_in_head: bool,
    /// The tick in which what is unfinished began.
    since: u32,
    received: u64,
    payload: u64,
}

impl Frames {
    pub(super) fn new() -> Frames {
        Frames {
            header: [0; HEADER],
            filled: 0,
            left: PREFACE,
            is_data: false,
            is_in_head: false,
            since: 0,
            received: 0,
            payload: 0,
        }
    }

    /// Takes note of what has been read.
    pub(super) fn follow(&mut self, mut bytes: &[u8], now: u32) {
        self.received += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = bytes.len().min(self.left as usize);
                self.left -= taken as u32;
                bytes = &bytes[taken..];
                continue;
            }
            if self.filled == 0 && !self.is_in_head {
                self.since = now;
            }
            let taken = bytes.len().min(HEADER - self.filled);
            self.header[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEADER {
                self.filled = 0;
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.header;
        self.left = u32::from_be_bytes([0, a, b, c]);
        self.is_data = kind == DATA;
        if matches!(kind, DATA | HEADERS | CONTINUATION) {
            self.payload += u64::from(self.left);
        }
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_in_head = flags & END_HEADERS == 0;
        }
    }

    /// Since which tick a head, or a frame that has to come at once, is on its way.
    pub(super) fn unfinished_since(&self) -> Option<u32> {
        let is_unfinished = self.is_in_head || self.filled > 0 || (self.left > 0 && !self.is_data);
        is_unfinished.then_some(self.since)
    }

    /// Whether what comes is mostly frames that carry nothing, though `sent` bytes of DATA have left as well.
    pub(super) fn is_flood(&self, sent: u64) -> bool {
        self.received / RATIO > self.payload + sent + FREE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn after_preface() -> Frames {
        let mut frames = Frames::new();
        frames.follow(&[0; PREFACE as usize], 1);
        frames
    }

    #[test]
    fn a_head_is_unfinished_from_its_first_byte_to_its_last_frame() {
        let bytes =
            [frame(HEADERS, 0, b"abc"), frame(CONTINUATION, 0, b""), frame(CONTINUATION, END_HEADERS, b"de")];
        let all = bytes.concat();
        let mut frames = after_preface();
        assert_eq!(frames.unfinished_since(), None);
        for (at, byte) in all.iter().enumerate() {
            frames.follow(&[*byte], 10 + at as u32);
            let expected = (at + 1 < all.len()).then_some(10);
            assert_eq!(frames.unfinished_since(), expected, "after byte {at}");
        }
        // Of DATA only its header is waited for: its stream has a rate.
        frames.follow(&frame(DATA, 0, &[0; 100])[..5], 90);
        assert_eq!(frames.unfinished_since(), Some(90));
        frames.follow(&frame(DATA, 0, &[0; 100])[5..50], 91);
        assert_eq!(frames.unfinished_since(), None);
    }

    #[test]
    fn frames_that_carry_nothing_are_a_flood_when_they_are_most_of_all() {
        const PING: u8 = 6;
        let pings = frame(PING, 0, &[0; 8]).repeat(1000);
        let (mut frames, mut sent) = (after_preface(), 0);
        while !frames.is_flood(0) {
            frames.follow(&pings, 1);
            sent += pings.len() as u64;
        }
        assert!((FREE * RATIO..FREE * RATIO + 50_000).contains(&sent), "{sent}");
        // With as much payload as one byte in eight it is none, whichever way that went.
        assert!(!frames.is_flood(sent / RATIO));
        frames.follow(&frame(DATA, 0, &vec![0; 1 << 20]), 1);
        assert!(!frames.is_flood(0));
    }
}
