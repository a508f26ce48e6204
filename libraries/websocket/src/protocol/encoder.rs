//! The encoding of WebSocket frames.

use crate::protocol::close_code::CloseCode;
use crate::protocol::close_frame::REASON_MAX;
use crate::protocol::deflate::{Deflater, Fin, Takeover};
use crate::protocol::frame::{CONTROL_MAX, Header, MAX_HEADER, OpCode};
use crate::protocol::mask::{MaskKey, unmask};

/// Encodes a frame and appends it to `out`. A client passes a fresh random `mask` for each frame,
/// and a server passes `None`.
///
/// # Panics
/// If `opcode` is that of a control frame, and the frame is not final or has more than 125 bytes
/// (RFC 6455, 5.5). [`encode_control`] and [`encode_close`] truncate longer payloads.
///
/// # Allocation
/// None, except that `out` may grow.
pub fn encode_frame(
    out: &mut Vec<u8>,
    opcode: OpCode,
    fin: bool,
    mask: Option<MaskKey>,
    payload: &[u8],
) {
    append_frame(out, opcode, fin, mask, payload);
}

/// Encodes a frame like [`encode_frame`]. It is inlined into the one place that encodes all
/// uncompressed messages.
#[expect(
    clippy::inline_always,
    reason = "saves 30 of the 327 instructions of frames/write-512; `inline` saves none"
)]
#[inline(always)]
pub(crate) fn append_frame(
    out: &mut Vec<u8>,
    opcode: OpCode,
    fin: bool,
    mask: Option<MaskKey>,
    payload: &[u8],
) {
    let mut header = [0; MAX_HEADER];
    let n = Header { fin, rsv1: false, opcode, mask, len: payload.len() as u64 }.write(&mut header);
    out.reserve(MAX_HEADER + payload.len());
    // The whole array is copied, because the compiler knows its length, and then truncated.
    let start = out.len() + n;
    out.extend_from_slice(&header);
    out.truncate(start);
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        unmask(mask, &mut out[start..]);
    }
}

/// Encodes a fragment of a message as a frame and appends it to `out`, compressed if there is a
/// `deflater`. `opcode` is the type of the message for its first fragment, and `fin` marks the last
/// fragment.
///
/// A message in one frame that compression would lengthen is sent uncompressed, if that does not
/// disturb the compression window of the peer.
///
/// # Panics
/// If `opcode` is that of a control frame.
///
/// # Allocation
/// `out` may grow, and the [`Deflater`] may allocate a compression state.
pub fn encode_message(
    out: &mut Vec<u8>,
    opcode: OpCode,
    fin: Fin,
    mask: Option<MaskKey>,
    payload: &[u8],
    deflater: Option<&mut Deflater>,
) {
    assert!(!opcode.is_control(), "a control frame is not part of a message (RFC 6455, 5.4)");
    let is_last = fin == Fin::Last;
    let Some(deflater) = deflater else {
        return encode_frame(out, opcode, is_last, mask, payload);
    };
    let start = out.len();
    // The length of the header is known only after the compression, so space for the longest header
    // is reserved, and unused space is removed afterwards.
    out.resize(start + MAX_HEADER, 0);
    deflater.push(payload, fin, out);
    let len = out.len() - start - MAX_HEADER;
    let is_whole = is_last && opcode != OpCode::Continuation;
    if len >= payload.len() && is_whole && deflater.takeover() == Takeover::None {
        out.truncate(start);
        return encode_frame(out, opcode, true, mask, payload);
    }
    let mut header = [0; MAX_HEADER];
    let rsv1 = opcode != OpCode::Continuation;
    let n = Header { fin: is_last, rsv1, opcode, mask, len: len as u64 }.write(&mut header);
    out[start..start + n].copy_from_slice(&header[..n]);
    out.copy_within(start + MAX_HEADER.., start + n);
    out.truncate(start + n + len);
    if let Some(mask) = mask {
        unmask(mask, &mut out[start + n..]);
    }
}

/// Encodes a control frame, such as a ping or pong, and appends it to `out`. A payload of more than
/// 125 bytes is truncated.
///
/// # Panics
/// If `opcode` is not that of a control frame.
pub fn encode_control(out: &mut Vec<u8>, opcode: OpCode, mask: Option<MaskKey>, payload: &[u8]) {
    assert!(opcode.is_control(), "only control frames are truncated");
    encode_frame(out, opcode, true, mask, &payload[..payload.len().min(CONTROL_MAX as usize)]);
}

/// Encodes a close frame and appends it to `out`. A reason of more than 123 bytes is truncated
/// between two characters.
pub fn encode_close(
    out: &mut Vec<u8>,
    code: Option<CloseCode>,
    reason: &str,
    mask: Option<MaskKey>,
) {
    let mut payload = [0; CONTROL_MAX as usize];
    let mut len = 0;
    if let Some(code) = code {
        let end = (0..=REASON_MAX.min(reason.len()))
            .rev()
            .find(|end| reason.is_char_boundary(*end))
            .unwrap_or(0);
        payload[..2].copy_from_slice(&code.get().to_be_bytes());
        payload[2..2 + end].copy_from_slice(&reason.as_bytes()[..end]);
        len = 2 + end;
    }
    encode_frame(out, OpCode::Close, true, mask, &payload[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // The examples of RFC 6455, 5.7.
        let mut out = Vec::new();
        encode_frame(&mut out, OpCode::Text, true, None, b"Hello");
        assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
        out.clear();
        encode_frame(
            &mut out,
            OpCode::Text,
            true,
            Some(MaskKey([0x37, 0xfa, 0x21, 0x3d])),
            b"Hello",
        );
        assert_eq!(out, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        out.clear();
        encode_frame(&mut out, OpCode::Text, false, None, b"Hel");
        encode_frame(&mut out, OpCode::Continuation, true, None, b"lo");
        assert_eq!(out, [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f]);
    }

    #[test]
    fn a_ping_above_125_bytes_cannot_be_encoded() {
        type Encode = fn(&mut Vec<u8>);
        let wrong: [Encode; 4] = [
            |out| encode_frame(out, OpCode::Ping, true, None, &[0; 126]),
            |out| encode_frame(out, OpCode::Ping, false, None, b"in two frames"),
            |out| encode_message(out, OpCode::Pong, Fin::Last, None, b"as a message", None),
            |out| encode_control(out, OpCode::Text, None, b"text"),
        ];
        for (n, encode) in wrong.into_iter().enumerate() {
            let encoded = std::panic::catch_unwind(|| encode(&mut Vec::new()));
            assert!(encoded.is_err(), "{n}");
        }
        let mut out = Vec::new();
        encode_control(&mut out, OpCode::Ping, None, &[7; 300]);
        assert_eq!((out[1], out.len()), (125, 127));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut out = Vec::new();
        encode_close(&mut out, Some(CloseCode::NORMAL), &"é".repeat(100), None);
        assert_eq!(out[1], 2 + 122);
        assert!(std::str::from_utf8(&out[4..]).is_ok());
    }
}
