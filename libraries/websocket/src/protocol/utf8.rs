//! Validation of UTF-8 text that arrives in chunks.

use std::fmt;

/// A validator of UTF-8 text that arrives in chunks. It finds an invalid byte in the chunk that
/// contains it, and not only at the end of the message (RFC 6455, 8.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Utf8Stream {
    /// The first bytes of a character whose remaining bytes are in the next chunk.
    carry: [u8; 4],
    len: u8,
}

/// Returns true if `text` is valid UTF-8. For fewer than 64 bytes, the standard library is faster
/// than simdutf8, which first has to detect the features of the processor.
pub(crate) fn is_utf8(text: &[u8]) -> bool {
    if text.len() < 64 {
        std::str::from_utf8(text).is_ok()
    } else {
        simdutf8::basic::from_utf8(text).is_ok()
    }
}

/// An error: a text is not valid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotUtf8;

impl fmt::Display for NotUtf8 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text is not UTF-8")
    }
}

impl std::error::Error for NotUtf8 {}

impl Utf8Stream {
    /// Validates the next chunk of the text.
    ///
    /// # Errors
    /// [`NotUtf8`] if the text so far cannot be the beginning of valid UTF-8.
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<(), NotUtf8> {
        while self.len > 0 {
            let Some((byte, rest)) = chunk.split_first() else { return Ok(()) };
            self.carry[usize::from(self.len)] = *byte;
            self.len += 1;
            chunk = rest;
            match std::str::from_utf8(&self.carry[..usize::from(self.len)]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_some() => return Err(NotUtf8),
                Err(_) => {}
            }
        }
        // simdutf8 is fast because it returns only yes or no. The position is computed when the
        // answer is no.
        if is_utf8(chunk) {
            return Ok(());
        }
        match std::str::from_utf8(chunk) {
            Ok(_) => Ok(()),
            Err(error) if error.error_len().is_some() => Err(NotUtf8),
            Err(error) => {
                let cut = &chunk[error.valid_up_to()..];
                self.carry[..cut.len()].copy_from_slice(cut);
                self.len = cut.len() as u8;
                Ok(())
            }
        }
    }

    /// Checks, at the end of the text, that its last character is complete.
    ///
    /// # Errors
    /// [`NotUtf8`] if the text ends within a character.
    pub fn end(&mut self) -> Result<(), NotUtf8> {
        let is_cut = self.len > 0;
        *self = Utf8Stream::default();
        if is_cut { Err(NotUtf8) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chunks: &[&[u8]]) -> bool {
        let mut stream = Utf8Stream::default();
        chunks.iter().all(|chunk| stream.push(chunk).is_ok()) && stream.end().is_ok()
    }

    #[test]
    fn any_split_gives_what_the_whole_gives() {
        let texts: &[&[u8]] = &[
            "κόσμε 𐍈 € ascii".as_bytes(),
            b"plain",
            b"",
            b"\xce\xba\xe1\xbd",
            b"\xf4\x90\x80\x80",
            b"\xed\xa0\x80",
            b"\xc0\xaf",
            b"a\xffb",
            b"\xf0\x9f\x98",
        ];
        for text in texts {
            let whole = std::str::from_utf8(text).is_ok();
            for a in 0..=text.len() {
                for b in a..=text.len() {
                    assert_eq!(
                        check(&[&text[..a], &text[a..b], &text[b..]]),
                        whole,
                        "{text:x?} at {a}, {b}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_bad_byte_is_found_in_its_own_chunk() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"\xf4"), Ok(()));
        assert_eq!(stream.push(b"\x90"), Err(NotUtf8));
    }
}
