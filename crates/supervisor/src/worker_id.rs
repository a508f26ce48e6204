//! The random id that names a worker process in URLs. Shiny appends it to the URLs of a session as
//! the parameter `w=`.
//!
//! An id needs no signature, because nobody can guess its 16 random bytes. The session cookie, in
//! contrast, names a worker by small numbers, which could be guessed, and is therefore signed.

use std::fmt;
use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// The length of a worker's id in bytes. It equals the length of the token of a Shiny session.
const BYTES: usize = 16;

/// The random id that names one worker process in the URLs of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerId([u8; BYTES]);

impl WorkerId {
    /// Creates a random id for a new worker process.
    ///
    /// # Errors
    /// Returns an error if the operating system provides no random numbers.
    pub fn new() -> io::Result<WorkerId> {
        let mut bytes = [0; BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| io::Error::other("the system provides no random numbers"))?;
        Ok(WorkerId(bytes))
    }

    /// Parses a worker's id from 32 hexadecimal digits in lower case. Returns `None` for any other
    /// text.
    pub(crate) fn parse(text: &[u8]) -> Option<WorkerId> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; BYTES];
        if text.len() != 2 * BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(WorkerId(bytes))
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written_and_in_no_other_way() {
        let id = WorkerId::new().unwrap();
        assert_ne!(id, WorkerId::new().unwrap());
        let text = id.to_string();
        assert_eq!((text.len(), WorkerId::parse(text.as_bytes())), (32, Some(id)));
        let known = "00112233445566778899aabbccddeeff";
        assert_eq!(WorkerId::parse(known.as_bytes()).unwrap().to_string(), known);
        for wrong in [
            "",
            "0",
            &text[1..],
            &format!("{text}0"),
            &known.to_uppercase(),
            &known.replace('f', "g"),
        ] {
            assert_eq!(WorkerId::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
