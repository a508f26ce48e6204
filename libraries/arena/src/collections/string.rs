//! A growable string whose memory is in an arena.

use core::borrow::Borrow;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::str;

mod edit;

pub use edit::Drain;

use super::vec::Vec;
use crate::arena::Arena;
use crate::error::AllocError;

/// A growable string whose memory is in an [`Arena`]. It grows as [`Vec`] does.
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
/// Appending costs a copy of the text and amortized constant time for each byte. All other methods
/// take constant time.
///
/// # Panics
/// Methods without `try_` in their name panic if the memory is not available. `write!` returns
/// [`fmt::Error`] instead.
pub struct String<'a> {
    /// The text of the string in UTF-8.
    bytes: Vec<'a, u8>,
}

impl<'a> String<'a> {
    /// Makes an empty string.
    ///
    /// # Allocation
    /// None.
    pub const fn new_in(arena: &'a Arena) -> String<'a> {
        String { bytes: Vec::new_in(arena) }
    }

    /// Makes an empty string with space for `capacity` bytes.
    ///
    /// # Panics
    /// If the memory is not available.
    #[track_caller]
    pub fn with_capacity_in(capacity: usize, arena: &'a Arena) -> String<'a> {
        String { bytes: Vec::with_capacity_in(capacity, arena) }
    }

    /// Appends a character to the string.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Appends `text` to the string.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends `text` to the string, as [`push_str`](String::push_str) does, but returns an error
    /// instead of panicking.
    ///
    /// # Errors
    /// If the memory is not available. In this case the string is unchanged.
    #[inline]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), AllocError> {
        self.bytes.try_extend_from_slice(text.as_bytes())
    }

    /// Removes the string's last character and returns it.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.bytes.len() - last.len_utf8());
        Some(last)
    }

    /// Removes all characters from the string, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Returns the string's capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the string's text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self
    }

    /// Returns the string's text. It stays in the arena until the arena is reset.
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: the bytes are UTF-8, because only whole texts and characters are added, and only
        // whole characters are removed.
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
        // SAFETY: as in `into_str`; writing through a `&mut str` keeps the text valid.
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

super::compare_as!(impl [] String<'_> as str);

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

impl Borrow<str> for String<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

/// Copies the string to new memory in the same arena.
impl Clone for String<'_> {
    fn clone(&self) -> Self {
        let mut copy = String::with_capacity_in(self.len(), self.bytes.arena());
        copy.push_str(self);
        copy
    }

    fn clone_from(&mut self, from: &Self) {
        self.clear();
        self.push_str(from);
    }
}

impl Extend<char> for String<'_> {
    fn extend<I: IntoIterator<Item = char>>(&mut self, characters: I) {
        characters.into_iter().for_each(|character| self.push(character));
    }
}

impl<'t> Extend<&'t str> for String<'_> {
    fn extend<I: IntoIterator<Item = &'t str>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push_str(text));
    }
}

/// Makes a [`String`] in an arena from formatted text, as `format!` makes one on the heap.
///
/// ```
/// use rookery_arena::{Arena, format_in};
///
/// let arena = Arena::new();
/// let line = format_in!(&arena, "{}: {}", "content-length", 42);
/// assert_eq!(line, "content-length: 42");
/// ```
///
/// # Panics
/// If the memory is not available, or if an implementation of a formatting trait returns an error.
#[macro_export]
macro_rules! format_in {
    ($arena:expr, $($text:tt)+) => {
        $crate::collections::String::from_fmt_in(::core::format_args!($($text)+), $arena)
    };
}
