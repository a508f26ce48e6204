//! A growable text in an arena.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::str;

use crate::arena::Arena;
use crate::error::AllocError;
use crate::vec::Vec;

/// A growable text in an [`Arena`], that grows as [`Vec`] does.
///
/// ```
/// use std::fmt::Write;
///
/// use rookery_arena::{Arena, collections::String};
///
/// let arena = Arena::new();
/// let mut line = String::new_in(&arena);
/// write!(line, "{}: {}", "content-length", 42)?;
/// let line: &str = line.into_str();
/// assert_eq!(line, "content-length: 42");
/// # Ok::<(), std::fmt::Error>(())
/// ```
///
/// # Cost
/// As [`Vec`] of bytes: adding costs a copy of the text and, spread over all additions, constant time per byte; all else
/// is constant.
///
/// # Panics
/// Methods without `try_` in their name panic when the memory cannot be had. `write!` gives [`fmt::Error`] then.
pub struct String<'a> {
    /// UTF-8.
    bytes: Vec<'a, u8>,
}

impl<'a> String<'a> {
    /// Makes an empty text.
    ///
    /// # Allocation
    /// None.
    pub const fn new_in(arena: &'a Arena) -> String<'a> {
        String { bytes: Vec::new_in(arena) }
    }

    /// Makes an empty text with room for `capacity` bytes.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, arena: &'a Arena) -> String<'a> {
        String { bytes: Vec::with_capacity_in(capacity, arena) }
    }

    /// Adds a character at the end.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Adds `text` at the end.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// As [`push_str`](String::push_str).
    ///
    /// # Errors
    /// When the memory cannot be had; the text is then as before.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.bytes.try_extend_from_slice(text.as_bytes())
    }

    /// Takes the last character.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Forgets all characters. The memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Bytes there is room for.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self
    }

    /// Leaves the text to the arena, for as long as it is not reset.
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: UTF-8, for only whole texts and characters come in and only whole characters go.
        unsafe { str::from_utf8_unchecked_mut(self.bytes.into_slice()) }
    }
}

impl Deref for String<'_> {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        // SAFETY: as in `into_str`.
        unsafe { str::from_utf8_unchecked(&self.bytes) }
    }
}

impl DerefMut for String<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut str {
        // SAFETY: as in `into_str`; a `&mut str` keeps it so.
        unsafe { str::from_utf8_unchecked_mut(&mut self.bytes) }
    }
}

impl fmt::Write for String<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}

impl fmt::Debug for String<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for String<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl PartialEq for String<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for String<'_> {}

impl PartialEq<str> for String<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for String<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl AsRef<str> for String<'_> {
    fn as_ref(&self) -> &str {
        self
    }
}
