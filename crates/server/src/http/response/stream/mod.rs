//! Responses whose bodies the application produces chunk by chunk.

pub(crate) mod chunked;
pub(crate) mod head;
pub(crate) mod registry;
pub(crate) mod response_stream;
