//! Connections from the supervisor to worker processes. They use HTTP/1.1 over Unix sockets.

pub(super) mod framing;
pub(super) mod request_writer;
pub(super) mod response_headers;
mod spooled_body;
pub(super) mod worker_connection;

pub(super) use spooled_body::SpooledBody;
