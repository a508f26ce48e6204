//! Messages to the user on standard error.

use std::sync::OnceLock;
use std::time::Instant;

use rookery_server::output;

/// Returns the time until which the program's exit waits for outputs that accept no data. The first
/// call sets it to one second from now.
pub(crate) fn output_deadline() -> Instant {
    static DEADLINE: OnceLock<Instant> = OnceLock::new();
    *DEADLINE.get_or_init(|| Instant::now() + output::FLUSH_TIME)
}

/// Writes one line with the prefix `rookery:` to standard error, from any thread. Never blocks,
/// even if standard error is a full pipe.
pub(crate) fn log_line(line: &str) {
    print_lines(&format!("rookery: {line}"));
}

/// Writes lines to standard error, from any thread. Never blocks, even if standard error is a full
/// pipe.
pub(crate) fn print_lines(lines: &str) {
    output::stderr().write(format!("{lines}\n").as_bytes());
}
