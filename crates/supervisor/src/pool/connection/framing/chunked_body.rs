//! A decoder for HTTP bodies in the chunked transfer coding (RFC 9112, 7.1). It decodes the data in
//! place, without a second buffer.

use super::Malformed;

/// The maximum number of bytes of chunk extensions and trailers in one chunked body. The decoder
/// discards these bytes.
const MAX_DISCARDED: u32 = 16 << 10;

/// A decoder for one HTTP body in the chunked transfer coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct ChunkDecoder {
    state: State,
    /// The number of bytes of the current chunk that have not been read. While the chunk size is
    /// being parsed, the value of the digits read so far.
    left: u64,
    /// The number of bytes of chunk extensions and trailers that have been discarded in this body.
    discarded: u32,
}

/// The position of the decoder within a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The decoder is before the first digit of a chunk size.
    Begin,
    /// The decoder has read a digit of a chunk size.
    Size,
    /// The decoder has read a space after a chunk size.
    Space,
    /// The decoder is within a chunk extension.
    Extension,
    /// The decoder has read the CR at the end of a line with a chunk size, and expects the LF.
    SizeEnd,
    /// The decoder is within the data of a chunk.
    Data,
    /// The decoder has read all data of a chunk, and expects the line end after it.
    DataEnd,
    /// The decoder has read the CR after the data of a chunk, and expects the LF.
    DataLf,
    /// The decoder is at the beginning of a line in the trailer section.
    Trailer,
    /// The decoder is within the name of a trailer field.
    Name,
    /// The decoder has read the colon of a trailer field.
    Field,
    /// The decoder has read the CR at the end of a trailer field, and expects the LF.
    FieldLf,
    /// The decoder has read the final CR of the chunked body, and expects the LF.
    LastLf,
    /// The decoder has read the complete chunked body.
    End,
}

/// The result of decoding some bytes of a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Decoded {
    /// The number of decoded bytes of data. They have been moved to the beginning of the buffer.
    pub(in crate::pool) data: usize,
    /// The number of bytes of the buffer that were decoded. It is less than the length of the
    /// buffer only if the chunked body has ended.
    pub(in crate::pool) used: usize,
}

impl ChunkDecoder {
    pub(in crate::pool) fn new() -> ChunkDecoder {
        ChunkDecoder { state: State::Begin, left: 0, discarded: 0 }
    }

    /// Returns true once the decoder has read the complete chunked body.
    pub(in crate::pool) fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// Decodes the next bytes of a chunked body and moves the data to the beginning of `bytes`.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid chunked coding, or if extensions and trailers
    /// exceed their limit.
    pub(in crate::pool) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, Malformed> {
        let (mut data, mut at) = (0, 0);
        while at < bytes.len() && self.state != State::End {
            if self.state == State::Data {
                let len = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - at);
                bytes.copy_within(at..at + len, data);
                (data, at) = (data + len, at + len);
                self.left -= len as u64;
                if self.left == 0 {
                    self.state = State::DataEnd;
                }
                continue;
            }
            self.state = self.step(bytes[at])?;
            at += 1;
        }
        Ok(Decoded { data, used: at })
    }

    /// Returns the state of the decoder after it has read `byte`. The byte belongs to the framing,
    /// such as a chunk size, and not to the data of a chunk.
    fn step(&mut self, byte: u8) -> Result<State, Malformed> {
        Ok(match (self.state, byte) {
            (State::Begin | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from(char::from(byte).to_digit(16).ok_or(Malformed)?);
                self.left = self.left.checked_mul(16).ok_or(Malformed)? | digit;
                State::Size
            }
            (State::Size | State::Space, b' ' | b'\t') => {
                self.discard()?;
                State::Space
            }
            (State::Size | State::Space, b';') => State::Extension,
            (State::Size | State::Space | State::Extension, b'\r') => State::SizeEnd,
            (State::SizeEnd, b'\n') if self.left == 0 => State::Trailer,
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataEnd, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Begin,
            (State::Trailer, b'\r') => State::LastLf,
            (State::Field, b'\r') => State::FieldLf,
            (State::FieldLf, b'\n') => State::Trailer,
            (State::LastLf, b'\n') => State::End,
            (State::Name, b':') => State::Field,
            (State::Trailer | State::Name, byte) if is_token(byte) => {
                self.discard()?;
                State::Name
            }
            // A line feed without CR is not accepted here, because parsers disagree on whether it
            // ends a line.
            (State::Extension | State::Field, b'\t' | b' '..=b'~' | 0x80..) => {
                self.discard()?;
                self.state
            }
            _ => return Err(Malformed),
        })
    }

    /// Counts a discarded byte of a chunk extension or trailer. Returns an error once the limit is
    /// exceeded.
    fn discard(&mut self) -> Result<(), Malformed> {
        self.discarded += 1;
        if self.discarded > MAX_DISCARDED { Err(Malformed) } else { Ok(()) }
    }
}

/// Returns true if a byte is allowed in a token (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Body = Option<(Vec<u8>, Vec<u8>)>;

    /// Decodes a chunked body that arrives in the given pieces. Returns the decoded body and the
    /// bytes that follow it, or `None` if the body is incomplete.
    fn decode(pieces: &[&[u8]]) -> Result<Body, Malformed> {
        let (mut decoder, mut body, mut rest) = (ChunkDecoder::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut bytes = piece.to_vec();
            let decoded = decoder.decode(&mut bytes)?;
            assert!(decoded.data <= decoded.used && decoded.used <= bytes.len());
            assert!(decoder.is_complete() || decoded.used == bytes.len());
            body.extend_from_slice(&bytes[..decoded.data]);
            rest.extend_from_slice(&piece[decoded.used..]);
        }
        Ok(decoder.is_complete().then_some((body, rest)))
    }

    fn whole(bytes: &str) -> Result<Body, Malformed> {
        decode(&[bytes.as_bytes()])
    }

    const BODY: &str = "5\r\nhello\r\n0010 ;a=\"b\" ; c\r\n0123456789abcdef\r\n1\t\r\n,\r\nA\r\n\r\n0\r\n\r\n\r\n\r\r\n00\r\nx: y\r\nz: \r\n\r\nrest";

    #[test]
    fn decodes_the_same_however_the_bytes_are_divided() {
        let expected =
            Ok(Some((b"hello0123456789abcdef,\r\n0\r\n\r\n\r\n\r".to_vec(), b"rest".to_vec())));
        let bytes = BODY.as_bytes();
        assert_eq!(decode(&[bytes]), expected);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), expected);
        for a in 0..bytes.len() {
            for b in a..bytes.len() {
                assert_eq!(decode(&[&bytes[..a], &bytes[a..b], &bytes[b..]]), expected, "{a} {b}");
            }
        }
        for end in 0..bytes.len() - 4 {
            assert_eq!(decode(&[&bytes[..end]]), Ok(None), "{end}");
        }
    }

    #[test]
    fn rejects_what_parsers_could_read_differently() {
        for bytes in [
            "\r\n",
            "g\r\n",
            " 1\r\n",
            ";a\r\n",
            "1\n",
            "1\r\r",
            "1;a\n",
            "0x1\r\n",
            "-1\r\n",
            "+1\r\n",
            "1 1\r\n",
            "1\r\na\n",
            "1\r\nab",
            "1\r\na\rb",
            "0\r\n\n",
            "0\r\nx\n",
            "0\r\nx: y\r\r",
            "0\r\n\rx",
            "0\r\nx\r\n",
            "0\r\n: y\r\n",
            "0\r\nx y: z\r\n",
            "0\r\nx: \0\r\n",
            "0;\0\r\n",
            "10000000000000000\r\n",
            "1\r\na1\r\n",
            "1_0\r\n",
        ] {
            assert_eq!(whole(bytes), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(whole("ffffffffffffffff\r\nabc"), Ok(None));
    }

    #[test]
    fn limits_extensions_and_trailers() {
        let max = MAX_DISCARDED as usize;
        for (begin, end) in [
            ("1;", "\r\na\r\n0\r\n\r\n"),
            ("1 ", "\r\na\r\n0\r\n\r\n"),
            ("1\r\na\r\n0\r\nx:", "\r\n\r\n"),
        ] {
            let fill = if begin == "1 " { " " } else { "x" };
            let with = |len: usize| format!("{begin}{}{end}", fill.repeat(len));
            // The limit also includes the space and the first character of the trailer's name.
            let max = max - usize::from(!begin.ends_with(';'));
            assert_eq!(whole(&with(max)), Ok(Some((b"a".to_vec(), Vec::new()))), "{begin:?}");
            assert_eq!(whole(&with(max + 1)), Err(Malformed), "{begin:?}");
        }
        // The limit applies to the whole body.
        let many = format!("1;{}\r\na\r\n", "x".repeat(max / 4)).repeat(5);
        assert_eq!(whole(&many), Err(Malformed));
    }
}
