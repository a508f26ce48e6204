//! The random id that names a worker process in URLs. Shiny appends it to the URLs of a session as
//! the parameter `w=`.
//!
//! An id needs no signature, because nobody can guess its 16 random bytes. The session cookie, in
//! contrast, names a worker by small numbers, which could be guessed, and is therefore signed.

use std::fmt;
use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// The length of a worker's id in hexadecimal digits. It equals the length of the token of a Shiny
/// session.
const DIGITS: usize = 32;

/// The random id that names one worker process in the URLs of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerId(u128);

impl WorkerId {
    /// Creates a random id for a new worker process.
    ///
    /// # Errors
    /// Returns an error if the operating system provides no random numbers.
    pub fn new() -> io::Result<WorkerId> {
        let mut bytes = [0; DIGITS / 2];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| io::Error::other("the system provides no random numbers"))?;
        Ok(WorkerId(u128::from_be_bytes(bytes)))
    }

    /// Parses a worker's id from 32 hexadecimal digits in lower case. Returns `None` for any other
    /// text.
    pub(crate) fn parse(text: &[u8]) -> Option<WorkerId> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = std::str::from_utf8(text).ok()?;
        let is_id = text.len() == DIGITS && text.iter().all(is_digit);
        is_id.then(|| u128::from_str_radix(digits, 16).ok().map(WorkerId))?
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0DIGITS$x}", self.0)
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
