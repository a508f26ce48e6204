//! Where the frames end that a worker sends, whose bytes are passed on as they come: between two of them, and nowhere else, a frame of the
//! supervisor's may stand (RFC 6455, 5.4). Of a frame its header alone is read.

use rookery_websocket::protocol::{CloseCode, Header, MAX_HEADER, OpCode};

/// What a client is told when its worker has ended, or ends: the service restarts, and a new session can be had (IANA's registry).
pub(super) const SERVICE_RESTART: u16 = 1012;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    /// Bytes of the frame's payload that are yet to come, once its header has.
    payload_left: u64,
    /// What has come of a header that is not whole.
    header: [u8; MAX_HEADER],
    header_len: u8,
    /// Of a close frame, what is yet to come of its code.
    close_code: CodeProgress,
    /// Whether a close frame has begun: what is behind it counts for nobody.
    has_close_frame: bool,
    /// Whether it is unknown where frames end, since there was something that is none: no end is seen any more.
    is_lost: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CodeProgress {
    #[default]
    None,
    First,
    /// The first byte was this.
    Second(u8),
}

impl FrameTracker {
    /// Whether what has come so far ends with a frame.
    pub(super) fn is_at_frame_boundary(&self) -> bool {
        self.payload_left == 0 && self.header_len == 0 && !self.is_lost
    }

    /// Whether the worker has begun to close.
    pub(super) fn has_close_frame(&self) -> bool {
        self.has_close_frame
    }

    /// Follows all that has come. A worker that goes away has its client come back: the code of its close frame is changed into the one that
    /// says so.
    pub(super) fn track(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let n = self.track_to_boundary(bytes);
            bytes = &mut bytes[n..];
        }
    }

    /// Follows what has come up to the first end of a frame: how much that is. All of it, where none ends.
    pub(super) fn track_to_boundary(&mut self, bytes: &mut [u8]) -> usize {
        if self.is_lost {
            return bytes.len();
        }
        let mut n = 0;
        if self.payload_left == 0 {
            n = self.take_header(bytes);
        }
        n + self.take_payload(&mut bytes[n..])
    }

    /// Reads a header, or what has come of it: how much that is.
    fn take_header(&mut self, bytes: &[u8]) -> usize {
        let before = usize::from(self.header_len);
        let fits = bytes.len().min(MAX_HEADER - before);
        // The first bytes of it lie here, where it came in parts.
        let parsed = if before == 0 {
            Header::parse(&bytes[..fits])
        } else {
            self.header[before..before + fits].copy_from_slice(&bytes[..fits]);
            Header::parse(&self.header[..before + fits])
        };
        match parsed {
            Ok(Ok((header, len))) => {
                self.header_len = 0;
                self.payload_left = header.len;
                let is_close = header.opcode == OpCode::Close;
                self.has_close_frame |= is_close;
                self.close_code = if is_close && header.mask.is_none() {
                    CodeProgress::First
                } else {
                    CodeProgress::None
                };
                len - before
            }
            Ok(Err(_)) => {
                self.header[before..before + fits].copy_from_slice(&bytes[..fits]);
                self.header_len += fits as u8;
                fits
            }
            Err(_) => {
                self.is_lost = true;
                bytes.len()
            }
        }
    }

    fn take_payload(&mut self, bytes: &mut [u8]) -> usize {
        let n = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
        if self.close_code != CodeProgress::None {
            self.take_code(&mut bytes[..n]);
        }
        self.payload_left -= n as u64;
        n
    }

    fn take_code(&mut self, payload: &mut [u8]) {
        for byte in payload {
            match self.close_code {
                CodeProgress::None => return,
                CodeProgress::First => self.close_code = CodeProgress::Second(*byte),
                CodeProgress::Second(first) => {
                    if [first, *byte] == CloseCode::GOING_AWAY.get().to_be_bytes() {
                        // The first byte is the same.
                        *byte = SERVICE_RESTART.to_be_bytes()[1];
                    }
                    self.close_code = CodeProgress::None;
                }
            }
        }
    }
}

/// Where frames end in `bytes`, which come in two parts, what is passed on of them, and whether the worker has begun to close. For the
/// fuzzer.
pub(super) fn track_frames_for_fuzzer(bytes: &[u8], cut: usize) -> (Vec<usize>, Vec<u8>, bool) {
    let (mut tracker, mut found, mut passed) =
        (FrameTracker::default(), Vec::new(), bytes.to_vec());
    let (first, second) = passed.split_at_mut(cut);
    let mut at = 0;
    for mut part in [first, second] {
        while !part.is_empty() {
            let n = tracker.track_to_boundary(part);
            at += n;
            if tracker.is_at_frame_boundary() {
                found.push(at);
            }
            part = &mut part[n..];
        }
    }
    (found, passed, tracker.has_close_frame())
}

#[cfg(test)]
mod tests {
    use rookery_websocket::protocol::{encode_close, encode_frame};

    use super::*;

    /// Frames of all kinds of headers, and where they end.
    fn frames() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut tracker) = (Vec::new(), Vec::new());
        for len in [0, 1, 5, 125, 126, 200, 65_535, 65_536, 65_540, 0, 3] {
            encode_frame(&mut bytes, OpCode::Binary, len % 2 == 0, None, &vec![0x88; len]);
            tracker.push(bytes.len());
        }
        // Compressed.
        bytes.extend_from_slice(&[0xC1, 2, 7, 7]);
        tracker.push(bytes.len());
        (bytes, tracker)
    }

    #[test]
    fn finds_frame_boundaries_however_the_bytes_are_split() {
        let (bytes, expected) = frames();
        let near = |at: &usize| expected.iter().any(|end| end.abs_diff(*at) < 16);
        for cut in (0..=bytes.len()).filter(near) {
            assert_eq!(
                track_frames_for_fuzzer(&bytes, cut),
                (expected.clone(), bytes.clone(), false),
                "{cut}"
            );
        }
        // A byte at a time.
        let (mut tracker, mut found) = (FrameTracker::default(), Vec::new());
        for (at, byte) in bytes.iter().enumerate() {
            tracker.track(&mut [*byte]);
            if tracker.is_at_frame_boundary() {
                found.push(at + 1);
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn replaces_close_code_1001_of_a_worker_by_1012() {
        for (code, told) in
            [(1001, 1012), (1000, 1000), (1012, 1012), (4001, 4001), (0x0FE9, 0x0FE9)]
        {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            for (out, code) in [(&mut bytes, code), (&mut expected, told)] {
                encode_frame(out, OpCode::Text, true, None, b"\x03\xE9 is no close code");
                encode_close(out, CloseCode::new(code), "\u{3E9}", None);
                // What comes behind it is nobody's.
                encode_frame(out, OpCode::Text, true, None, b"\x03\xE9");
            }
            for cut in 0..=bytes.len() {
                let (_, passed, is_closing) = track_frames_for_fuzzer(&bytes, cut);
                assert!(passed == expected && is_closing, "{code} {cut}");
            }
        }
        // One without a code, and one with half of it.
        for frame in [&[0x88, 0][..], &[0x88, 1, 3]] {
            let mut tracker = FrameTracker::default();
            tracker.track(&mut frame.to_vec());
            assert!(tracker.is_at_frame_boundary() && tracker.has_close_frame());
        }
    }

    #[test]
    fn reports_no_boundary_after_an_invalid_frame() {
        for bad in [&[0x83, 0][..], &[0xB1, 0], &[0x09, 0], &[0x82, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0]]
        {
            let mut tracker = FrameTracker::default();
            tracker.track(&mut [0x81, 1, b'a']);
            assert!(tracker.is_at_frame_boundary());
            tracker.track(&mut [bad, &[0x81, 1, b'a']].concat());
            assert!(!tracker.is_at_frame_boundary(), "{bad:x?}");
            tracker.track(&mut [0x81, 1, b'a']);
            assert!(!tracker.is_at_frame_boundary(), "{bad:x?}");
        }
    }
}
