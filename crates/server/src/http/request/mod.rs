//! Processing a request, from its head to the application's response.

pub(crate) mod body_collector;
pub(crate) mod client_address;
pub(crate) mod context_pool;
pub mod cookies;
pub(crate) mod handler;
pub(crate) mod head;
pub(crate) mod kept_headers;
pub(crate) mod pending_response;
pub(crate) mod request_body;
pub(crate) mod request_context;
pub(crate) mod request_span;
pub(crate) mod spool_folder;
pub(crate) mod stream;
