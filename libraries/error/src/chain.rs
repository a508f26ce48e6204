//! The chain of an error and its sources: an iterator over it, and functions that print it.

use std::error::Error as StdError;
use std::fmt::{self, Write};

use crate::Error;

/// An iterator over an error, its source, the source of that source, and so on. [`Error::chain`]
/// returns it.
#[derive(Debug, Clone)]
pub struct Chain<'a> {
    next: Option<&'a (dyn StdError + 'static)>,
}

impl<'a> Chain<'a> {
    /// Returns an iterator over `error` and its sources.
    pub fn new(error: &'a (dyn StdError + 'static)) -> Chain<'a> {
        Chain { next: Some(error) }
    }
}

impl<'a> Iterator for Chain<'a> {
    type Item = &'a (dyn StdError + 'static);

    fn next(&mut self) -> Option<Self::Item> {
        let error = self.next?;
        self.next = error.source();
        Some(error)
    }
}

pub(crate) fn display(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !f.alternate() {
        return fmt::Display::fmt(error.object(), f);
    }
    // Without the `#` flag: an error of another crate that prints its sources for it would print
    // them twice.
    write!(f, "{}", error.object())?;
    error.chain().skip(1).try_for_each(|source| write!(f, ": {source}"))
}

pub(crate) fn debug(error: &Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if f.alternate() {
        return fmt::Debug::fmt(error.object(), f);
    }
    write!(f, "{error}")?;
    if error.source().is_some() {
        f.write_str("\n\nCaused by:")?;
        for (depth, source) in error.chain().skip(1).enumerate() {
            write!(f, "\n    {depth}: ")?;
            write!(Indented { to: f }, "{source}")?;
        }
    }
    if let Some(backtrace) = error.backtrace() {
        write!(f, "\n\nBacktrace:\n{backtrace}")?;
    }
    Ok(())
}

/// A writer that indents each line of a message except the first.
struct Indented<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
}

impl Write for Indented<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.to.write_str("\n       ")?;
            }
            self.to.write_str(line)?;
        }
        Ok(())
    }
}
