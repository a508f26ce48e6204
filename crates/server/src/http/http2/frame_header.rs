//! The header of an HTTP/2 frame (RFC 9113, 4.1), with the types and flags of frames.

/// The length of a frame header in bytes.
pub(super) const HEADER: usize = 9;

/// The type of a DATA frame (RFC 9113, 6.1).
pub(super) const DATA: u8 = 0;
/// The type of a HEADERS frame (RFC 9113, 6.2).
pub(super) const HEADERS: u8 = 1;
/// The type of an `RST_STREAM` frame (RFC 9113, 6.4).
pub(super) const RST_STREAM: u8 = 3;
/// The type of a SETTINGS frame (RFC 9113, 6.5).
pub(super) const SETTINGS: u8 = 4;
/// The type of a `PUSH_PROMISE` frame (RFC 9113, 6.6), which no client may send.
pub(super) const PUSH_PROMISE: u8 = 5;
/// The type of a CONTINUATION frame (RFC 9113, 6.10).
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const PRIORITY: u8 = 0x20;

/// Returns the type, the flags and the stream id from a frame header. The reserved first bit of the
/// stream id is cleared.
pub(super) fn parse(header: [u8; HEADER]) -> (u8, u8, u32) {
    let [_, _, _, kind, flags, stream @ ..] = header;
    (kind, flags, u32::from_be_bytes(stream) & (u32::MAX >> 1))
}
