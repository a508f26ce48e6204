//! What may block, and so never happens on the I/O thread.

pub(crate) mod job;
pub(crate) mod thread;
pub(crate) mod unnamed_file;
