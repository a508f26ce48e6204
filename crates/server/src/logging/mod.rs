//! The access log, and the writers for log outputs such as standard error.

pub mod access_log;
#[cfg(unix)]
pub mod captured_output;
mod civil;
pub(crate) mod digits;
mod json_lines;
pub(crate) mod line_writer;
pub mod output;
mod output_lines;
mod standard_stream;
