//! A parser that finds the boundaries of WebSocket frames in the bytes that the supervisor forwards
//! from a worker to a client. The supervisor may insert a frame of its own only at such a boundary
//! (RFC 6455, 5.4). The parser reads only the frame headers and the code of a close frame.

use rookery_websocket::protocol::{CloseCode, Header, MAX_HEADER, OpCode};

/// The WebSocket close code 1012 (service restart, in IANA's registry). It tells the client that
/// its worker has ended and that the client can open a new session.
pub(super) const SERVICE_RESTART: u16 = 1012;

/// A parser that tracks the frame boundaries in a forwarded WebSocket byte stream.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    /// The number of payload bytes of the current WebSocket frame that have not arrived yet.
    payload_left: u64,
    /// The bytes of a frame header that have arrived while the header is incomplete.
    header: [u8; MAX_HEADER],
    header_len: u8,
    /// The parser's position within the code of a close frame.
    close_code: CodeProgress,
    /// True once a close frame has begun.
    has_close_frame: bool,
    /// True once a frame header was invalid. Later frame boundaries can then not be found.
    is_lost: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CodeProgress {
    #[default]
    None,
    First,
    /// The first byte of a close code, while the second byte is expected.
    Second(u8),
}

impl FrameTracker {
    /// Returns true if the forwarded bytes end at a WebSocket frame boundary.
    pub(super) fn is_at_frame_boundary(&self) -> bool {
        self.payload_left == 0 && self.header_len == 0 && !self.is_lost
    }

    /// Returns true once the worker has begun to send a WebSocket close frame.
    pub(super) fn has_close_frame(&self) -> bool {
        self.has_close_frame
    }

    /// Tracks the frames in the bytes that a worker has sent to a WebSocket client. Overwrites
    /// close code 1001 (going away) in `bytes` with 1012 (service restart), so that the client
    /// opens a new session when its worker ends.
    pub(super) fn track(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let n = self.track_to_boundary(bytes);
            bytes = &mut bytes[n..];
        }
    }

    /// Processes forwarded bytes up to the first frame boundary, and returns their number.
    /// Processes all bytes if there is no boundary.
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

    /// Parses a frame header or a part of one, and returns how many bytes belong to it.
    fn take_header(&mut self, bytes: &[u8]) -> usize {
        let before = usize::from(self.header_len);
        let fits = bytes.len().min(MAX_HEADER - before);
        // The first bytes of a split header are in `self.header`.
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
                        // The first bytes of both codes are equal.
                        *byte = SERVICE_RESTART.to_be_bytes()[1];
                    }
                    self.close_code = CodeProgress::None;
                }
            }
        }
    }
}

/// Lets the fuzzer track the WebSocket frames in `bytes`, which arrive in two parts that are split
/// at `cut`. Returns the positions of the frame boundaries, the forwarded bytes, and whether a
/// close frame has begun.
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

    /// Returns WebSocket frames with all kinds of headers for the tests, and the positions of their
    /// boundaries.
    fn frames() -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut tracker) = (Vec::new(), Vec::new());
        for len in [0, 1, 5, 125, 126, 200, 65_535, 65_536, 65_540, 0, 3] {
            encode_frame(&mut bytes, OpCode::Binary, len % 2 == 0, None, &vec![0x88; len]);
            tracker.push(bytes.len());
        }
        // A compressed message.
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
        // One byte at a time.
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
        for (code, forwarded_code) in
            [(1001, 1012), (1000, 1000), (1012, 1012), (4001, 4001), (0x0FE9, 0x0FE9)]
        {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            for (out, code) in [(&mut bytes, code), (&mut expected, forwarded_code)] {
                encode_frame(out, OpCode::Text, true, None, b"\x03\xE9 is no close code");
                encode_close(out, CloseCode::new(code), "\u{3E9}", None);
                // Frames after a close frame are left unchanged.
                encode_frame(out, OpCode::Text, true, None, b"\x03\xE9");
            }
            for cut in 0..=bytes.len() {
                let (_, passed, is_closing) = track_frames_for_fuzzer(&bytes, cut);
                assert!(passed == expected && is_closing, "{code} {cut}");
            }
        }
        // A close frame without a code, and one with half of a code.
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
