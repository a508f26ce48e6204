//! Request bodies that are passed to the application chunk by chunk, as they arrive.

pub(crate) mod registry;
pub(crate) mod request_stream;
