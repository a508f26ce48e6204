//! Inserting text into a string and removing it, at any index.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{Range, RangeBounds};
use core::str;

use super::String;
use crate::arena::Arena;
use crate::collections::vec::bounds;

impl<'a> String<'a> {
    /// Makes a string of formatted text. The macro [`format_in!`](crate::format_in) calls it.
    ///
    /// # Panics
    /// If the memory is not available, or if an implementation of a formatting trait returns an
    /// error.
    #[track_caller]
    pub fn from_fmt_in(text: fmt::Arguments<'_>, arena: &'a Arena) -> String<'a> {
        /// Panics with the reason if the memory is not available, because `fmt::Error` contains no
        /// reason.
        struct Panicking<'s, 'a>(&'s mut String<'a>);

        impl fmt::Write for Panicking<'_, '_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.push_str(text);
                Ok(())
            }
        }

        let mut string = String::new_in(arena);
        if let Some(text) = text.as_str() {
            string.push_str(text);
            return string;
        }
        fmt::write(&mut Panicking(&mut string), text)
            .expect("an implementation of a formatting trait returned an error");
        string
    }

    /// Shortens the string to its first `len` bytes.
    ///
    /// # Panics
    /// If `len` is not at the boundary of a character.
    #[track_caller]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            assert!(self.is_char_boundary(len), "{len} is within a character of the string");
            self.bytes.truncate(len);
        }
    }

    /// Inserts a character at the byte `index`.
    ///
    /// # Panics
    /// If `index` is not at the boundary of a character, or if the memory is not available.
    #[track_caller]
    pub fn insert(&mut self, index: usize, character: char) {
        self.insert_str(index, character.encode_utf8(&mut [0; 4]));
    }

    /// Inserts `text` at the byte `index`.
    ///
    /// # Panics
    /// If `index` is not at the boundary of a character, or if the memory is not available.
    #[track_caller]
    pub fn insert_str(&mut self, index: usize, text: &str) {
        assert!(self.is_char_boundary(index), "{index} is no boundary of a character");
        // Nothing from here on panics but `extend_from_slice`, which leaves the bytes unchanged.
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes[index..].rotate_right(text.len());
    }

    /// Removes the character at the byte `index` and returns it.
    ///
    /// # Panics
    /// If no character begins at `index`.
    #[track_caller]
    pub fn remove(&mut self, index: usize) -> char {
        let character = self[index..].chars().next().expect("a character begins at the index");
        self.bytes.drain(index..index + character.len_utf8());
        character
    }

    /// Keeps the characters for which `keep` returns true, in their order, and removes the others.
    ///
    /// If `keep` panics, the characters that `keep` has not seen stay in the string.
    pub fn retain(&mut self, mut keep: impl FnMut(char) -> bool) {
        /// Moves the text that was not seen behind the text that is kept, also after a panic.
        struct CloseGap<'s, 'a> {
            string: &'s mut String<'a>,
            seen: usize,
            kept: usize,
        }

        impl Drop for CloseGap<'_, '_> {
            fn drop(&mut self) {
                // Whole characters lie before `kept` and from `seen` on.
                self.string.bytes.drain(self.kept..self.seen);
            }
        }

        let mut gap = CloseGap { string: self, seen: 0, kept: 0 };
        loop {
            // SAFETY: the bytes from `seen` on are the end of the text, from a boundary of a
            // character.
            let unseen = unsafe { str::from_utf8_unchecked(&gap.string.bytes[gap.seen..]) };
            let Some(character) = unseen.chars().next() else { break };
            let len = character.len_utf8();
            let is_kept = keep(character);
            if is_kept {
                gap.string.bytes.copy_within(gap.seen..gap.seen + len, gap.kept);
                gap.kept += len;
            }
            gap.seen += len;
        }
    }

    /// Returns an iterator over the characters of the bytes `range`, which are removed from the
    /// string when the iterator is dropped.
    ///
    /// # Panics
    /// If the range is not within the string, or does not begin and end at the boundary of a
    /// character.
    #[track_caller]
    pub fn drain(&mut self, range: impl RangeBounds<usize>) -> Drain<'_, 'a> {
        let range = bounds(&range, self.len());
        assert!(
            self.is_char_boundary(range.start) && self.is_char_boundary(range.end),
            "{range:?} does not begin and end at the boundary of a character"
        );
        Drain { rest: range.clone(), range, string: self }
    }
}

/// An iterator over the characters of a range of a [`String`]. When the iterator is dropped, the
/// whole range is removed from the string. If the iterator is leaked, nothing is removed.
pub struct Drain<'s, 'a> {
    string: &'s mut String<'a>,
    range: Range<usize>,
    /// The bytes of the characters that were not returned.
    rest: Range<usize>,
}

impl Drain<'_, '_> {
    /// Returns the characters that were not returned.
    pub fn as_str(&self) -> &str {
        &self.string[self.rest.clone()]
    }
}

impl Iterator for Drain<'_, '_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let character = self.as_str().chars().next()?;
        self.rest.start += character.len_utf8();
        Some(character)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.as_str().chars().size_hint()
    }
}

impl DoubleEndedIterator for Drain<'_, '_> {
    fn next_back(&mut self) -> Option<char> {
        let character = self.as_str().chars().next_back()?;
        self.rest.end -= character.len_utf8();
        Some(character)
    }
}

impl FusedIterator for Drain<'_, '_> {}

impl Drop for Drain<'_, '_> {
    fn drop(&mut self) {
        self.string.bytes.drain(self.range.clone());
    }
}

impl fmt::Debug for Drain<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drain").field(&self.as_str()).finish()
    }
}
