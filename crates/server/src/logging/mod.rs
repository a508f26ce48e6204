//! What the server tells of itself: lines and numbers.

pub mod access_log;
pub(crate) mod line_writer;
pub mod output;
