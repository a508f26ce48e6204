//! Formatting of error messages, and the macros `error!`, `bail!` and `ensure!`.

use std::fmt::{self, Write};

use crate::repr::Repr;
use crate::text::OwnedText;

/// Formats the message of an error. A message that fits into a buffer on the stack needs one
/// allocation. A longer one is collected in a `String`.
#[cold]
pub(crate) fn format(arguments: fmt::Arguments<'_>) -> Repr {
    let mut line = LineBuffer { bytes: [0; LINE], length: 0, rest: None };
    // Only the `Display` of an argument can fail. The text until then is still the best message.
    let _ = line.write_fmt(arguments);
    match line.rest {
        Some(long) => Repr::new(OwnedText(long)),
        None => Repr::text(
            std::str::from_utf8(&line.bytes[..line.length]).expect("whole `str`s were written"),
        ),
    }
}

/// The maximum number of bytes of a message that is formatted on the stack. Most messages fit, and
/// clearing a buffer of 256 bytes costs only 16 stores.
const LINE: usize = 256;

/// A buffer that collects a formatted message. The message is in the array `bytes` while it fits
/// there. A longer message is entirely in the `String` named `rest`.
struct LineBuffer {
    bytes: [u8; LINE],
    /// The number of bytes in `bytes` that are in use. Invariant: `length <= LINE`, and these bytes
    /// are whole characters.
    length: usize,
    rest: Option<String>,
}

impl Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(rest) = &mut self.rest {
            rest.push_str(text);
        } else if let Some(room) = self.bytes[self.length..].get_mut(..text.len()) {
            room.copy_from_slice(text.as_bytes());
            self.length += text.len();
        } else {
            let begun =
                std::str::from_utf8(&self.bytes[..self.length]).expect("whole `str`s were written");
            self.rest = Some([begun, text].concat());
        }
        Ok(())
    }
}

/// Makes an [`Error`](crate::Error) from a message. The message is only formatted if it has
/// arguments.
///
/// A literal without braces becomes a static message and allocates nothing. Other messages are
/// formatted by [`Error::format`](crate::Error::format), with one allocation for up to 256 bytes.
///
/// ```
/// use rookery_error::error;
///
/// let name = "x-y";
/// assert_eq!(error!("no such header").to_string(), "no such header");
/// assert_eq!(error!("no such header: {name}").to_string(), "no such header: x-y");
/// assert_eq!(error!("no such header: {}", name).to_string(), "no such header: x-y");
/// ```
#[macro_export]
macro_rules! error {
    // The expansion defines no items, because items are not hygienic: `{NAME}` in the literal has
    // to refer to the caller's `NAME`.
    ($message:literal $(,)?) => {
        if const { $crate::private::is_plain($message) } {
            $crate::Error::from_static(const { &$message })
        } else {
            $crate::Error::format(::core::format_args!($message))
        }
    };
    ($($argument:tt)+) => {
        $crate::Error::format(::core::format_args!($($argument)+))
    };
}

/// Returns from the function with an error made by [`error!`].
///
/// ```
/// use rookery_error::{Result, bail};
///
/// fn even(n: u32) -> Result<u32> {
///     if n % 2 == 1 {
///         bail!("{n} is odd");
///     }
///     Ok(n / 2)
/// }
/// assert_eq!(even(3).unwrap_err().to_string(), "3 is odd");
/// ```
#[macro_export]
macro_rules! bail {
    ($($argument:tt)+) => {
        return ::core::result::Result::Err($crate::error!($($argument)+).into())
    };
}

/// Returns from the function with an error if a condition is false.
///
/// The other arguments are those of [`error!`]. Without them the message is the text of the
/// condition, and nothing is allocated.
///
/// ```
/// use rookery_error::{Result, ensure};
///
/// fn port(number: u32) -> Result<u32> {
///     ensure!(number != 0);
///     ensure!(number < 65_536, "{number} is not a port");
///     Ok(number)
/// }
/// assert_eq!(port(0).unwrap_err().to_string(), "condition is false: `number != 0`");
/// assert_eq!(port(70_000).unwrap_err().to_string(), "70000 is not a port");
/// ```
#[macro_export]
macro_rules! ensure {
    ($condition:expr $(,)?) => {
        if !$condition {
            // Not `bail!`, because the text of a condition may have braces.
            return ::core::result::Result::Err($crate::Error::from_static(const {
                &::core::concat!("condition is false: `", ::core::stringify!($condition), "`")
            })
            .into());
        }
    };
    ($condition:expr, $($argument:tt)+) => {
        if !$condition {
            $crate::bail!($($argument)+);
        }
    };
}

/// Returns true if `format_args!` would print the string `format` unchanged, because it contains no
/// braces.
pub const fn is_plain(format: &str) -> bool {
    let bytes = format.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'{' || bytes[at] == b'}' {
            return false;
        }
        at += 1;
    }
    true
}
