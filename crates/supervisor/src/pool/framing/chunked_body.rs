//! A body in chunks (RFC 9112, 7.1), decoded where it lies.

use super::Malformed;

/// Bytes of extensions and trailers, which are left out, of one body: as hyper has it.
const LEFT_OUT: u32 = 16 << 10;

/// Where in a body its reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Chunks {
    state: State,
    /// Bytes of the chunk that are yet to come; before its size has ended, what it is so far.
    left: u64,
    /// Bytes that were left out.
    left_out: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size, and behind it.
    Begin,
    Size,
    /// Behind a space behind a size.
    Space,
    Extension,
    /// Behind the CR of a size's line.
    SizeEnd,
    Data,
    /// Behind a chunk's data, and the CR behind that.
    DataEnd,
    DataLf,
    /// At the beginning of a line of the trailer, within its name, and behind the colon.
    Trailer,
    Name,
    Field,
    FieldLf,
    /// Behind the last CR.
    LastLf,
    End,
}

/// What has been decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool) struct Decoded {
    /// Bytes of the body, which are at the beginning now.
    pub(in crate::pool) data: usize,
    /// Bytes that were read of: all, unless the body has ended.
    pub(in crate::pool) used: usize,
}

impl Chunks {
    pub(in crate::pool) fn new() -> Chunks {
        Chunks { state: State::Begin, left: 0, left_out: 0 }
    }

    /// Whether the body has ended.
    pub(in crate::pool) fn is_over(&self) -> bool {
        self.state == State::End
    }

    /// Decodes what comes next of it. The data moves to the beginning of `bytes`.
    ///
    /// # Errors
    /// These are no chunks.
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

    /// The state behind a byte that is none of the data.
    fn step(&mut self, byte: u8) -> Result<State, Malformed> {
        Ok(match (self.state, byte) {
            (State::Begin | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from(char::from(byte).to_digit(16).ok_or(Malformed)?);
                self.left = self.left.checked_mul(16).ok_or(Malformed)? | digit;
                State::Size
            }
            (State::Size | State::Space, b' ' | b'\t') => {
                self.leave_out()?;
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
                self.leave_out()?;
                State::Name
            }
            // A line feed alone ends a line for some and not for others.
            (State::Extension | State::Field, b'\t' | b' '..=b'~' | 0x80..) => {
                self.leave_out()?;
                self.state
            }
            _ => return Err(Malformed),
        })
    }

    fn leave_out(&mut self) -> Result<(), Malformed> {
        self.left_out += 1;
        if self.left_out > LEFT_OUT { Err(Malformed) } else { Ok(()) }
    }
}

/// RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Body = Option<(Vec<u8>, Vec<u8>)>;

    /// The body of what comes in these pieces, and what is behind it; `None`: it has no end.
    fn decode(pieces: &[&[u8]]) -> Result<Body, Malformed> {
        let (mut chunks, mut body, mut rest) = (Chunks::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let mut bytes = piece.to_vec();
            let decoded = chunks.decode(&mut bytes)?;
            assert!(decoded.data <= decoded.used && decoded.used <= bytes.len());
            assert!(chunks.is_over() || decoded.used == bytes.len());
            body.extend_from_slice(&bytes[..decoded.data]);
            rest.extend_from_slice(&piece[decoded.used..]);
        }
        Ok(chunks.is_over().then_some((body, rest)))
    }

    fn whole(bytes: &str) -> Result<Body, Malformed> {
        decode(&[bytes.as_bytes()])
    }

    const BODY: &str = "5\r\nhello\r\n0010 ;a=\"b\" ; c\r\n0123456789abcdef\r\n1\t\r\n,\r\nA\r\n\r\n0\r\n\r\n\r\n\r\r\n00\r\nx: y\r\nz: \r\n\r\nrest";

    #[test]
    fn it_is_the_same_however_it_is_cut() {
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
    fn what_two_could_read_differently_is_none() {
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
    fn what_is_left_out_has_a_limit() {
        let most = LEFT_OUT as usize;
        for (begin, end) in [
            ("1;", "\r\na\r\n0\r\n\r\n"),
            ("1 ", "\r\na\r\n0\r\n\r\n"),
            ("1\r\na\r\n0\r\nx:", "\r\n\r\n"),
        ] {
            let fill = if begin == "1 " { " " } else { "x" };
            let with = |len: usize| format!("{begin}{}{end}", fill.repeat(len));
            // The space and the name before it count.
            let most = most - usize::from(!begin.ends_with(';'));
            assert_eq!(whole(&with(most)), Ok(Some((b"a".to_vec(), Vec::new()))), "{begin:?}");
            assert_eq!(whole(&with(most + 1)), Err(Malformed), "{begin:?}");
        }
        // Of all of them together.
        let many = format!("1;{}\r\na\r\n", "x".repeat(most / 4)).repeat(5);
        assert_eq!(whole(&many), Err(Malformed));
    }
}
