//! The headers of WebSocket frames (RFC 6455, 5.2).

use crate::protocol::mask::MaskKey;
use crate::protocol::violation::Violation;
use std::fmt;

/// The type of a WebSocket frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OpCode {
    /// A frame that continues the current message.
    Continuation = 0,
    /// The first frame of a text message.
    Text = 1,
    /// The first frame of a binary message.
    Binary = 2,
    /// A close frame.
    Close = 8,
    /// A ping frame, which has to be answered with a pong.
    Ping = 9,
    /// A pong frame, the answer to a ping.
    Pong = 10,
}

impl OpCode {
    /// Returns true for the types of control frames: close, ping and pong. They have at most 125
    /// bytes and are never fragmented.
    pub fn is_control(self) -> bool {
        self as u8 >= 8
    }

    fn from_bits(bits: u8) -> Result<OpCode, Violation> {
        Ok(match bits {
            0 => OpCode::Continuation,
            1 => OpCode::Text,
            2 => OpCode::Binary,
            8 => OpCode::Close,
            9 => OpCode::Ping,
            10 => OpCode::Pong,
            other => return Err(Violation::OpCode(other)),
        })
    }
}

/// The header of a WebSocket frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// True if the frame is the last one of its message.
    pub fin: bool,
    /// The frame's bit RSV1, which marks a compressed message (RFC 7692, 6).
    pub rsv1: bool,
    /// The type of the frame.
    pub opcode: OpCode,
    /// The masking key of the frame. Frames of clients have one, and frames of servers do not.
    pub mask: Option<MaskKey>,
    /// The length of the frame's payload in bytes.
    pub len: u64,
}

/// The length in bytes of the longest frame header: two bytes, a payload length of eight bytes, and
/// a masking key of four bytes.
pub const MAX_HEADER: usize = 14;

/// The value of a frame's seven-bit length field which announces that a two-byte length follows.
const LEN_IN_TWO: u8 = 0x7E;

/// The value of a frame's seven-bit length field which announces that an eight-byte length
/// follows.
const LEN_IN_EIGHT: u8 = 0x7F;

/// The maximum payload of a control frame in bytes (RFC 6455, 5.5).
pub(crate) const CONTROL_MAX: u64 = 125;

/// The result for an incomplete frame header: the total number of bytes that the header needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incomplete(pub usize);

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the frame header needs {} bytes", self.0)
    }
}

impl std::error::Error for Incomplete {}

impl Header {
    /// Parses a frame header at the start of `bytes`. Returns it with its length in bytes.
    ///
    /// # Errors
    /// The inner error is the number of bytes that the header needs, if it is incomplete. The outer
    /// error is a violation of RFC 6455. Violations in the first two bytes are reported before the
    /// remaining header has arrived.
    pub fn parse(bytes: &[u8]) -> Result<Result<(Header, usize), Incomplete>, Violation> {
        let [first, second, rest @ ..] = bytes else { return Ok(Err(Incomplete(2))) };
        let opcode = OpCode::from_bits(first & 0x0F)?;
        let fin = first & 0x80 != 0;
        if first & 0x30 != 0 {
            return Err(Violation::ReservedBits);
        }
        let len7 = second & 0x7F;
        if opcode.is_control() && (!fin || u64::from(len7) > CONTROL_MAX) {
            return Err(if fin { Violation::LongControl } else { Violation::FragmentedControl });
        }
        let len_bytes = match len7 {
            LEN_IN_TWO => 2,
            LEN_IN_EIGHT => 8,
            _ => 0,
        };
        let is_masked = second & 0x80 != 0;
        let total = 2 + len_bytes + if is_masked { 4 } else { 0 };
        if bytes.len() < total {
            return Ok(Err(Incomplete(total)));
        }
        let len = match len_bytes {
            0 => u64::from(len7),
            2 => u64::from(u16::from_be_bytes([rest[0], rest[1]])),
            _ => u64::from_be_bytes(rest[..8].try_into().expect("eight bytes")),
        };
        // RFC 6455, 5.2: the length has its shortest form, and the top bit is 0.
        let least = match len_bytes {
            2 => 126,
            8 => 1 << 16,
            _ => 0,
        };
        if len < least || len >> 63 != 0 {
            return Err(Violation::Length);
        }
        let key = &rest[len_bytes..];
        let mask = is_masked.then(|| MaskKey([key[0], key[1], key[2], key[3]]));
        Ok(Ok((Header { fin, rsv1: first & 0x40 != 0, opcode, mask, len }, total)))
    }

    /// Writes the frame header to the start of `out` and returns its length in bytes.
    ///
    /// # Panics
    /// If the header is that of a control frame which is not final or has more than 125 bytes. RFC
    /// 6455, 5.5 forbids such frames.
    pub fn write(&self, out: &mut [u8; MAX_HEADER]) -> usize {
        assert!(self.fin || !self.opcode.is_control(), "a control frame is final (RFC 6455, 5.5)");
        out[0] = u8::from(self.fin) << 7 | u8::from(self.rsv1) << 6 | self.opcode as u8;
        let mask_bit = u8::from(self.mask.is_some()) << 7;
        let mut at = 2;
        if self.len <= CONTROL_MAX {
            out[1] = mask_bit | self.len as u8;
        } else {
            assert!(
                !self.opcode.is_control(),
                "a control frame has at most 125 bytes (RFC 6455, 5.5)"
            );
            if let Ok(len) = u16::try_from(self.len) {
                out[1] = mask_bit | LEN_IN_TWO;
                out[2..4].copy_from_slice(&len.to_be_bytes());
                at = 4;
            } else {
                out[1] = mask_bit | LEN_IN_EIGHT;
                out[2..10].copy_from_slice(&self.len.to_be_bytes());
                at = 10;
            }
        }
        if let Some(MaskKey(key)) = self.mask {
            out[at..at + 4].copy_from_slice(&key);
            at += 4;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_no_prefix_is_enough() {
        for len in [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 40, (1 << 63) - 1] {
            for mask in [None, Some(MaskKey([1, 2, 3, 4]))] {
                for opcode in [OpCode::Text, OpCode::Binary, OpCode::Continuation] {
                    let header = Header { fin: len % 2 == 0, rsv1: len > 200, opcode, mask, len };
                    let mut bytes = [0; MAX_HEADER];
                    let n = header.write(&mut bytes);
                    assert_eq!(Header::parse(&bytes[..n]), Ok(Ok((header, n))));
                    for short in 0..n {
                        let needed = if short < 2 { 2 } else { n };
                        assert_eq!(Header::parse(&bytes[..short]), Ok(Err(Incomplete(needed))));
                    }
                }
            }
        }
    }

    /// Checks that the longest control frame can be written, but not one with one more byte.
    #[test]
    fn a_control_frame_above_125_bytes_is_not_written() {
        for opcode in [OpCode::Close, OpCode::Ping, OpCode::Pong] {
            let header = |len| Header { fin: true, rsv1: false, opcode, mask: None, len };
            let mut bytes = [0; MAX_HEADER];
            assert_eq!(header(125).write(&mut bytes), 2);
            for len in [126, 200, 1 << 16] {
                let written = std::panic::catch_unwind(|| header(len).write(&mut [0; MAX_HEADER]));
                assert!(written.is_err(), "{opcode:?} with {len} bytes");
            }
            let fragment = Header { fin: false, ..header(0) };
            let written = std::panic::catch_unwind(|| fragment.write(&mut [0; MAX_HEADER]));
            assert!(written.is_err(), "{opcode:?} in fragments");
        }
    }

    #[test]
    fn bad_headers_are_named() {
        let table: &[(&[u8], Violation)] = &[
            (&[0x83, 0], Violation::OpCode(3)),
            (&[0x8B, 0], Violation::OpCode(11)),
            (&[0xA1, 0], Violation::ReservedBits),
            (&[0x91, 0], Violation::ReservedBits),
            (&[0x09, 0], Violation::FragmentedControl),
            (&[0x89, 126, 0, 126], Violation::LongControl),
            (&[0x88, 127], Violation::LongControl),
            (&[0x82, 126, 0, 125], Violation::Length),
            (&[0x82, 127, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF], Violation::Length),
            (&[0x82, 127, 0x80, 0, 0, 0, 0, 1, 0, 0], Violation::Length),
        ];
        for (bytes, violation) in table {
            assert_eq!(Header::parse(bytes), Err(*violation), "{bytes:x?}");
        }
    }
}
