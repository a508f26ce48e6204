//! Violations of the protocol, and the close codes that report them (RFC 6455, 7.4.1).

use std::fmt;

use crate::protocol::close_code::CloseCode;

/// A violation of the protocol by the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A reserved bit was set without an extension that uses it (RFC 6455, 5.2).
    ReservedBits,
    /// A reserved opcode.
    OpCode(u8),
    /// A control frame that is not final (5.5).
    FragmentedControl,
    /// A control frame of more than 125 bytes (5.5).
    LongControl,
    /// A length that is not in its shortest form, or whose top bit is set (5.2).
    Length,
    /// A client that does not mask its frames, or a server that does (5.1).
    Mask,
    /// A continuation frame without a message to continue (5.4).
    Continuation,
    /// A new message before the end of the current one (5.4).
    Interleaved,
    /// A text message that is not UTF-8 (8.1).
    Utf8,
    /// A close frame with a payload of one byte (5.5.1).
    ClosePayload,
    /// A close code that must not be sent (7.4).
    CloseCode(u16),
    /// A message larger than [`crate::protocol::DecoderLimits::message`].
    TooBig,
    /// A message in more frames than [`crate::protocol::DecoderLimits::fragments`].
    Fragments,
    /// A compressed message that is not a valid deflate stream (RFC 7692, 7.2.2).
    Inflate,
}

impl Violation {
    /// Returns the close code that reports the violation.
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
