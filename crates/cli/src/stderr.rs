//! Messages to people, on standard error.

use std::sync::OnceLock;
use std::time::Instant;

use rookery_server::output;

/// Returns until when the end of the program waits for outputs that accept no data: for one second
/// in all, which the first call begins.
pub(crate) fn output_deadline() -> Instant {
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    *DEADLINE.get_or_init(|| Instant::now() + output::FLUSH_TIME)
}

/// Writes one line to stderr, from any thread. Never blocks, even if nobody reads stderr.
pub(crate) fn log_line(line: &str) {
    print_lines(&format!("rookery: {line}"));
}

/// Writes lines to stderr, from any thread. Never blocks, even if nobody reads stderr.
pub(crate) fn print_lines(lines: &str) {
    output::stderr().write(format!("{lines}\n").as_bytes());
}
