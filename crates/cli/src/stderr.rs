//! Messages of the program to the user, on standard error.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::time::Instant;

use rookery_server::output::{self, Level};
use rookery_settings::table::with_argument_names;

use crate::process::session::parent_session;

/// Returns the time at which the exiting program stops waiting for blocked outputs, such as a full
/// pipe. It is one second after the first call of this function.
pub(crate) fn output_deadline() -> Instant {
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    *DEADLINE.get_or_init(|| Instant::now() + output::FLUSH_TIME)
}

/// Returns a message for the user. The user of an R session that has started this program knows
/// arguments of R functions, and no command-line options.
pub(crate) fn for_user(message: &str) -> Cow<'_, str> {
    if parent_session().is_some() { with_argument_names(message).into() } else { message.into() }
}

/// Logs one line to standard error ([`output::log`]).
pub(crate) fn log_line(line: &str) {
    output::log(Level::Info, &for_user(line));
}

/// Logs one line about a failure that the server has dealt with ([`output::log`]).
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) fn log_warning(line: &str) {
    output::log(Level::Warning, &for_user(line));
}

/// Logs the error that ends the program ([`output::log`]).
pub(crate) fn log_error(line: &str) {
    output::log(Level::Error, &for_user(line));
}

/// Writes lines to standard error ([`output::print`]).
pub(crate) fn print_lines(lines: &str) {
    output::print(Level::Info, lines);
}
