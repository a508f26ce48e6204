//! The format of the access log for people at a terminal: aligned columns with colour.

use std::fmt::{self, Display};
use std::io::{self, Write as _};
use std::time::Duration;

use super::record::{Record, cut, escape_common};
use crate::logging::civil::Civil;

/// The duration from which a time is highlighted, because users notice it.
const SLOW: Duration = Duration::from_secs(1);

/// The ANSI codes of the colours.
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";
const DIM: &str = "2";

impl Record<'_> {
    /// Appends the record as a line of aligned columns: the time of day in UTC, the method, the
    /// status code, the duration, the time in the queue and in R, the size, the target, and the
    /// route if it differs from the path.
    pub(super) fn write_terminal(&self, is_coloured: bool, out: &mut Vec<u8>) -> io::Result<()> {
        let colour = |code| is_coloured.then_some(code);
        let civil = Civil::of(self.time);
        let (hour, minute, second) = (civil.hour, civil.minute, civil.second);
        write!(out, "{} ", paint(colour(DIM), format_args!("{hour:02}:{minute:02}:{second:02}Z")))?;
        let start = out.len();
        escape_common(if self.method.is_empty() { b"-" } else { self.method }, out);
        let width = out.len() - start;
        write!(out, "{:1$} ", "", 7_usize.saturating_sub(width))?;
        let of_status = match self.status {
            500.. => RED,
            400.. => YELLOW,
            300.. => CYAN,
            _ => GREEN,
        };
        write!(out, "{} ", paint(colour(of_status), format_args!("{:>3}", self.status)))?;
        let elapsed = Milliseconds(Some(self.elapsed));
        if self.elapsed >= SLOW {
            write!(out, "{}", paint(colour(YELLOW), format_args!("{elapsed}")))?;
        } else {
            write!(out, "{elapsed}")?;
        }
        let (queue, r) = (Milliseconds(self.queue), Milliseconds(self.r));
        write!(
            out,
            "{}",
            paint(colour(DIM), format_args!("  queue{queue}  R{r} {}", Size(self.bytes)))
        )?;
        out.extend_from_slice(b"  ");
        escape_common(cut(self.path), out);
        escape_common(cut(self.query), out);
        if !self.route.is_empty() && self.route != self.path {
            write!(out, "  {}", paint(colour(DIM), format_args!("{}", Escaped(self.route))))?;
        }
        if let Some(reason) = self.aborted {
            write!(out, "  {}", paint(colour(RED), format_args!("aborted: {}", reason.name())))?;
        }
        out.push(b'\n');
        Ok(())
    }
}

/// Bytes as text, with escapes for everything that could change the state of a terminal.
struct Escaped<'a>(&'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{}", byte.escape_ascii()))
    }
}

/// Gives text a colour, unless the colour is `None`.
fn paint<T: Display>(colour: Option<&'static str>, text: T) -> Painted<T> {
    Painted { colour, text }
}

/// Text in a colour, if it has one.
struct Painted<T> {
    colour: Option<&'static str>,
    text: T,
}

impl<T: Display> Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.colour {
            Some(colour) => write!(f, "\x1b[{colour}m{}\x1b[0m", self.text),
            None => self.text.fmt(f),
        }
    }
}

/// A time in milliseconds, or in seconds if it is long, in a column of 10 characters.
struct Milliseconds(Option<Duration>);

impl Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("         -"),
            Some(time) if time < Duration::from_secs(10) => {
                write!(f, "{:>7.1} ms", time.as_secs_f64() * 1000.0)
            }
            Some(time) => write!(f, "{:>8.1} s", time.as_secs_f64()),
        }
    }
}

/// A number of bytes in a column of 9 characters.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1000 => write!(f, "{bytes:>7} B"),
            bytes => {
                #[allow(clippy::cast_precision_loss, reason = "four digits are shown")]
                let (mut size, mut unit) = (bytes as f64 / 1000.0, 0);
                while size >= 999.95 && unit < 4 {
                    (size, unit) = (size / 1000.0, unit + 1);
                }
                write!(f, "{size:>6.1} {}B", ["k", "M", "G", "T", "P"][unit])
            }
        }
    }
}
