//! Messages of the program to the user, on standard error.

use std::sync::OnceLock;
use std::time::Instant;

use rookery_server::output::{self, Level};

/// Returns the time at which the exiting program stops waiting for blocked outputs, such as a full
/// pipe. It is one second after the first call of this function.
pub(crate) fn output_deadline() -> Instant {
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    *DEADLINE.get_or_init(|| Instant::now() + output::FLUSH_TIME)
}

/// Logs one line to standard error ([`output::log`]).
pub(crate) fn log_line(line: &str) {
    output::log(Level::Info, line);
}

/// Logs one line about a failure that the server has dealt with ([`output::log`]).
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) fn log_warning(line: &str) {
    output::log(Level::Warning, line);
}

/// Logs the error that ends the program ([`output::log`]).
pub(crate) fn log_error(line: &str) {
    output::log(Level::Error, line);
}

/// Writes lines to standard error ([`output::print`]).
pub(crate) fn print_lines(lines: &str) {
    output::print(Level::Info, lines);
}
