//! The contents of errors that consist only of a text.

#![allow(unsafe_code)]

use std::error::Error as StdError;
use std::fmt;
use std::ptr::NonNull;

use crate::content::{Content, Object};

/// A static text that is the content of an error.
#[repr(transparent)]
pub(crate) struct StaticText(&'static str);

/// A `String` that is the content of an error. Its buffer is kept, so the text is not copied.
pub(crate) struct OwnedText(pub(crate) String);

/// A pointer to a text that is the content of an error. The text is in the same heap allocation,
/// directly after this pointer.
pub(crate) struct InlineText(NonNull<str>);

impl InlineText {
    /// Makes the content of an error from a pointer to the error's text.
    ///
    /// # Safety
    /// - `text` is valid for reads as long as the result and everything made from it is used.
    /// - Nobody writes to `text`.
    pub(crate) unsafe fn new(text: NonNull<str>) -> InlineText {
        InlineText(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        // SAFETY: the caller of `new` guaranteed that the text is valid and not written to.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: it is a shared `str`, which is `Send` and `Sync`.
unsafe impl Send for InlineText {}
// SAFETY: as above.
unsafe impl Sync for InlineText {}

macro_rules! text_content {
    ($name:ident, $self:ident => $text:expr) => {
        impl fmt::Display for $name {
            fn fmt(&$self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt($text, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&$self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt($text, f)
            }
        }

        impl StdError for $name {}

        impl Content for $name {
            fn object(&self) -> &Object {
                self
            }

            fn into_boxed($self) -> Box<Object> {
                String::from($text).into()
            }
        }
    };
}

text_content!(StaticText, self => self.0);
text_content!(OwnedText, self => &self.0[..]);
text_content!(InlineText, self => self.as_str());
