//! Messages of the program to the user, on standard error.

use std::sync::OnceLock;
use std::time::Instant;

use rookery_server::output;

/// Returns the time at which the exiting program stops waiting for blocked outputs, such as a full
/// pipe. It is one second after the first call of this function.
pub(crate) fn output_deadline() -> Instant {
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    *DEADLINE.get_or_init(|| Instant::now() + output::FLUSH_TIME)
}

/// Logs one line with the prefix `rookery:` to standard error. Can be called on any thread, and
/// never blocks, even if standard error is a full pipe.
pub(crate) fn log_line(line: &str) {
    print_lines(&format!("rookery: {line}"));
}

/// Writes lines to standard error. Can be called on any thread, and never blocks, even if standard
/// error is a full pipe.
pub(crate) fn print_lines(lines: &str) {
    output::stderr().write(format!("{lines}\n").as_bytes());
}
