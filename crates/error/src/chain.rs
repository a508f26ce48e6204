//! An error and its sources, to walk and to print.

use std::error::Error as StdError;
use std::fmt::{self, Write};

use crate::Error;

/// An error, its source, the source of that, and so on: made by [`Error::chain`].
#[derive(Debug, Clone)]
pub struct Chain<'a> {
    next: Option<&'a (dyn StdError + 'static)>,
}

impl<'a> Chain<'a> {
    /// The chain of any error.
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
    // Not with the `#`, which would have a foreign error that does likewise show its sources twice.
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

/// Keeps the further lines of a message under its first.
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
