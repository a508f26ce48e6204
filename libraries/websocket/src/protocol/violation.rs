//! Violations of the WebSocket protocol, and the close codes that report them (RFC 6455, 7.4.1).

use std::fmt;

use crate::protocol::close_code::CloseCode;

/// A violation of the WebSocket protocol by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The peer set a reserved bit of a frame, although no extension uses this bit (RFC 6455, 5.2).
    ReservedBits,
    /// The peer sent a frame with this reserved opcode (RFC 6455, 5.2).
    OpCode(u8),
    /// The peer sent a control frame that is not final (RFC 6455, 5.5).
    FragmentedControl,
    /// The peer sent a control frame of more than 125 bytes (RFC 6455, 5.5).
    LongControl,
    /// The length of a frame is not in its shortest form, or its top bit is set (RFC 6455, 5.2).
    Length,
    /// A client did not mask a frame, or a server did (RFC 6455, 5.1).
    Mask,
    /// The peer sent a continuation frame, but there is no message to continue (RFC 6455, 5.4).
    Continuation,
    /// The peer began a new message before the end of the current one (RFC 6455, 5.4).
    Interleaved,
    /// A text message, or the reason in a close frame, is not UTF-8 (RFC 6455, 8.1).
    Utf8,
    /// The peer sent a close frame with a payload of one byte (RFC 6455, 5.5.1).
    ClosePayload,
    /// The peer sent a close frame with this code, which must not be sent (RFC 6455, 7.4).
    CloseCode(u16),
    /// A message is larger than [`crate::protocol::DecoderLimits::message`].
    TooBig,
    /// A message has more frames than [`crate::protocol::DecoderLimits::fragments`].
    Fragments,
    /// A compressed message is not a valid deflate stream (RFC 7692, 7.2.2).
    Inflate,
}

impl Violation {
    /// Returns the close code that reports the violation to the peer.
    pub fn close_code(self) -> CloseCode {
        match self {
            Violation::Utf8 | Violation::Inflate => CloseCode::INVALID,
            Violation::TooBig => CloseCode::TOO_BIG,
            Violation::Fragments => CloseCode::POLICY,
            _ => CloseCode::PROTOCOL,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::ReservedBits => f.write_str("reserved bits set"),
            Violation::OpCode(code) => write!(f, "reserved opcode {code}"),
            Violation::FragmentedControl => f.write_str("fragmented control frame"),
            Violation::LongControl => f.write_str("control frame of more than 125 bytes"),
            Violation::Length => f.write_str("bad frame length"),
            Violation::Mask => f.write_str("wrong masking"),
            Violation::Continuation => f.write_str("continuation frame without a message"),
            Violation::Interleaved => f.write_str("new message before the end of the current one"),
            Violation::Utf8 => f.write_str("text is not UTF-8"),
            Violation::ClosePayload => f.write_str("close frame of one byte"),
            Violation::CloseCode(code) => write!(f, "close code {code} must not be sent"),
            Violation::TooBig => f.write_str("message too big"),
            Violation::Fragments => f.write_str("message in too many frames"),
            Violation::Inflate => f.write_str("compressed message is not valid deflate data"),
        }
    }
}

impl std::error::Error for Violation {}
