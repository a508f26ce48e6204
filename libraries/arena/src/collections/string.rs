//! A growable string whose memory is in an arena.

use core::fmt;
use core::ops::Deref;
use core::str;

use super::vec::Vec;
use crate::arena::Arena;

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
/// If the memory is not available. `write!` returns [`fmt::Error`] instead.
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

    /// Appends `text` to the string.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Returns the string's text.
    #[inline]
    pub fn as_str(&self) -> &str {
        self
    }

    /// Returns the string's text. It stays in the arena until the arena is reset.
    pub fn into_str(self) -> &'a mut str {
        // SAFETY: the bytes are UTF-8, because only whole texts are added.
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

impl fmt::Write for String<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes.try_extend_from_slice(text.as_bytes()).map_err(|_| fmt::Error)
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
