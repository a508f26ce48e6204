//! A part of the scoreboard that contains a short text: the method and path of the request that R
//! is processing, or the functions on R's stack.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::visible_text::visible_text;

/// The maximum number of times that a reader repeats its reading because the text has changed
/// meanwhile.
const MAX_READS: u32 = 3;

/// A text in shared memory with one writer, which never waits for readers (a sequence lock).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TextCell<const WORDS: usize> {
    /// An even number, which grows with every change, or an odd number during a change.
    version: AtomicU32,
    len: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> TextCell<WORDS> {
    /// The maximum length of the text in bytes.
    pub(crate) const MAX_LEN: usize = 8 * WORDS;

    pub(crate) const fn new() -> TextCell<WORDS> {
        TextCell {
            version: AtomicU32::new(0),
            len: AtomicU32::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// Replaces the text, and truncates it to [`MAX_LEN`](Self::MAX_LEN) bytes. Only one thread may
    /// write.
    pub(crate) fn write<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) {
        let mut text = [[0; 8]; WORDS];
        let bytes = text.as_flattened_mut();
        let mut len = 0;
        for part in parts {
            let part = &part[..part.len().min(Self::MAX_LEN - len)];
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        self.len.store(len as u32, Relaxed);
        for (word, bytes) in self.words.iter().zip(text).take(len.div_ceil(8)) {
            word.store(u64::from_le_bytes(bytes), Relaxed);
        }
        self.version.store(version.wrapping_add(2), Release);
    }

    /// Removes the text. Only the thread that writes may do so.
    pub(crate) fn clear(&self) {
        // Most events follow one that has left no text.
        if self.len.load(Relaxed) != 0 {
            self.write([]);
        }
    }

    /// Returns the text, or `None` if it is empty or changes too quickly. Accepts whatever another
    /// process has written: bytes that are not UTF-8, and characters that are not
    /// [visible](crate::visible_char), are replaced.
    pub(crate) fn read(&self) -> Option<String> {
        for _ in 0..MAX_READS {
            let version = self.version.load(Acquire);
            let len = (self.len.load(Relaxed) as usize).min(Self::MAX_LEN);
            let mut text = [[0; 8]; WORDS];
            for (word, bytes) in self.words.iter().zip(&mut text) {
                *bytes = word.load(Relaxed).to_le_bytes();
            }
            fence(Acquire);
            if version % 2 == 0 && self.version.load(Relaxed) == version {
                let text = String::from_utf8_lossy(&text.as_flattened()[..len]);
                return (len > 0).then(|| visible_text(&text));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Cell = TextCell<12>;

    #[test]
    fn a_text_is_read_as_it_was_written_and_long_text_is_truncated() {
        let cell = Cell::new();
        assert_eq!(cell.read(), None);
        cell.write([&b"GET"[..], b" ", b"/report"]);
        assert_eq!(cell.read().as_deref(), Some("GET /report"));
        cell.write([&b"GET /a"[..]]);
        assert_eq!(cell.read().as_deref(), Some("GET /a"));
        cell.write([&[b'x'; 200][..], b"y"]);
        assert_eq!(cell.read(), Some("x".repeat(Cell::MAX_LEN)));
        for _ in 0..2 {
            cell.clear();
            assert_eq!(cell.read(), None);
        }
    }

    #[test]
    fn anything_in_the_memory_is_accepted() {
        let cell = Cell::new();
        cell.write([&b"\xff\x1b[2J"[..]]);
        assert_eq!(cell.read().as_deref(), Some("\u{fffd}\u{fffd}[2J"));
        cell.len.store(u32::MAX, Relaxed);
        assert_eq!(cell.read().map(|text| text.chars().count()), Some(Cell::MAX_LEN));
        cell.version.store(7, Relaxed);
        assert_eq!(cell.read(), None);
    }

    #[test]
    fn a_reader_never_sees_half_of_a_text() {
        let cell = Cell::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for turn in 0..20_000_u32 {
                    let byte = [b'a' + (turn % 26) as u8; 90];
                    cell.write([&byte[..=(turn % 90) as usize]]);
                }
            });
            while !writer.is_finished() {
                if let Some(text) = cell.read() {
                    assert!(text.bytes().all(|byte| byte == text.as_bytes()[0]), "{text}");
                }
            }
        });
    }
}
