//! A parser for HTTP/2 HEADERS frames that contain trailers (RFC 9113, 6.2), and the memory that h2
//! holds for trailers. The server uses the parser to rewrite such a frame before h2 reads it.

use super::frame_header::{PADDED, PRIORITY};

/// The length in bytes of the priority fields that an HTTP/2 HEADERS frame may contain.
const PRIORITY_BYTES: usize = 5;

/// An ordinary header field that the server inserts in front of trailers. Only after such a field
/// does h2 detect pseudo-header fields, which trailers must not contain. The name of the field is
/// `x` and its value is empty, in HPACK encoding (RFC 7541, 6.2.2).
pub(super) const MARKER: &[u8] = &[0, 1, b'x', 0];

/// Returns the header block within the payload of an HTTP/2 HEADERS frame. Returns `None` if the
/// padding is longer than the rest of the payload.
pub(super) fn fields(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    let (padding, rest) = match flags & PADDED {
        0 => (0, payload),
        _ => payload.split_first().map(|(padding, rest)| (usize::from(*padding), rest))?,
    };
    let rest = if flags & PRIORITY == 0 { rest } else { rest.get(PRIORITY_BYTES..)? };
    rest.get(..rest.len().checked_sub(padding)?)
}

/// Returns the length in bytes of the dynamic table size updates (RFC 7541, 6.3) at the beginning
/// of a header block.
pub(super) fn updates(block: &[u8]) -> usize {
    let mut len = 0;
    while let Some(first) = block.get(len).filter(|first| **first >> 5 == 1) {
        // An integer with a prefix of five bits. Seven bits follow in each further byte, and the
        // last byte has a first bit of 0 (RFC 7541, 5.1).
        let rest = &block[len + 1..];
        let more = match first & 0x1F {
            0x1F => rest.iter().position(|byte| byte & 0x80 == 0).map(|last| last + 1),
            _ => Some(0),
        };
        // An update that continues in the next frame is not counted.
        let Some(more) = more else { break };
        len += 1 + more;
    }
    len
}

/// The maximum number of bytes that h2 holds for each byte of a header block: an indexed field has
/// one byte, and takes an entry of a header map.
const BYTES_PER_BYTE: usize = 128;

/// The maximum number of bytes that h2 holds for the trailers of a stream, whose size is limited as
/// that of a request head.
const MAX_BYTES: usize = 480 << 10;

/// The memory of trailers, which h2 holds until the stream ends, because the server never takes
/// them from h2.
#[derive(Debug, Default)]
pub(super) struct HeldTrailers {
    /// The lengths of the trailers of each stream that has any.
    streams: Vec<(u32, usize)>,
    bytes: usize,
}

impl HeldTrailers {
    /// Returns the number of bytes that h2 may hold for all trailers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the id of each stream that has trailers, and the number of bytes that h2 may hold
    /// for them.
    pub(super) fn of_streams(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.streams.iter().map(|(stream, len)| (*stream, held(*len)))
    }

    /// Records that a HEADERS frame with the trailers of this stream has begun, with `len` bytes.
    pub(super) fn begin(&mut self, stream: u32, len: usize) {
        if !self.streams.iter().any(|(other, _)| *other == stream) {
            self.streams.push((stream, 0));
        }
        self.extend(stream, len);
    }

    /// Records that a CONTINUATION frame with `len` bytes has begun, which may belong to trailers.
    pub(super) fn extend(&mut self, stream: u32, len: usize) {
        if let Some((_, total)) = self.streams.iter_mut().find(|(other, _)| *other == stream) {
            self.bytes -= held(*total);
            *total += len;
            self.bytes += held(*total);
        }
    }

    /// Records that the server has ended a stream.
    pub(super) fn end(&mut self, stream: u32) {
        self.retain(|other| other != stream);
    }

    /// Records that h2 holds the trailers only of the streams for which `is_open` returns true.
    pub(super) fn retain(&mut self, is_open: impl Fn(u32) -> bool) {
        self.streams.retain(|(stream, len)| {
            let is_kept = is_open(*stream);
            self.bytes -= if is_kept { 0 } else { held(*len) };
            is_kept
        });
    }
}

/// Returns the number of bytes that h2 may hold for trailers of `len` bytes.
fn held(len: usize) -> usize {
    (len * BYTES_PER_BYTE).min(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_padding_and_priority() {
        for (flags, payload, expected) in [
            (0, &b"abc"[..], Some(&b"abc"[..])),
            (PADDED, b"\x02abc..", Some(b"abc")),
            (PADDED, b"\x05abc..", Some(b"")),
            (PADDED, b"\x06abc..", None),
            (PADDED, b"", None),
            (PRIORITY, b"12345abc", Some(b"abc")),
            (PRIORITY, b"1234", None),
            (PADDED | PRIORITY, b"\x0112345abc.", Some(b"abc")),
            (PADDED | PRIORITY, b"\x0112345", None),
        ] {
            assert_eq!(fields(flags, payload), expected, "{flags} {payload:?}");
        }
    }

    #[test]
    fn trailers_are_held_until_their_stream_ends() {
        let mut held = HeldTrailers::default();
        held.extend(1, 100);
        assert_eq!(held.bytes(), 0);
        held.begin(3, 10);
        held.begin(5, 1);
        held.extend(5, 1);
        assert_eq!(held.bytes(), 12 * BYTES_PER_BYTE);
        held.begin(3, 1 << 20);
        assert_eq!(held.bytes(), MAX_BYTES + 2 * BYTES_PER_BYTE);
        held.end(3);
        held.end(7);
        assert_eq!(held.bytes(), 2 * BYTES_PER_BYTE);
        held.end(5);
        assert_eq!((held.bytes(), held.streams.len()), (0, 0));
        (7..=9).for_each(|stream| held.begin(stream, 1));
        held.retain(|stream| stream == 8);
        assert_eq!((held.bytes(), held.streams.len()), (BYTES_PER_BYTE, 1));
    }

    #[test]
    fn measures_leading_table_size_updates() {
        for (block, expected) in [
            (&[][..], 0),
            (&[0x82], 0),
            (&[0x20, 0x82], 1),
            (&[0x20, 0x3E, 0x82], 2),
            (&[0x3F, 0xE1, 0x1F, 0x82], 3),
            (&[0x3F, 0xE1], 0),
            (&[0x20, 0x3F], 1),
        ] {
            assert_eq!(updates(block), expected, "{block:?}");
        }
    }
}
