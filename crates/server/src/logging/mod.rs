//! The access log, and the writers for log outputs such as standard error.

pub mod access_log;
pub(crate) mod line_writer;
pub mod output;
mod standard_stream;
