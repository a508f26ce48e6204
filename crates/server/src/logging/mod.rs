//! The outputs for logs, and the access log.

pub mod access_log;
pub(crate) mod line_writer;
pub mod output;
