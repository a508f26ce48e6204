//! Connections from the supervisor to worker processes: the rings in shared memory, and HTTP/1.1
//! over Unix sockets.

pub(super) mod framing;
pub(super) mod request_writer;
pub(super) mod response_headers;
pub(super) mod ring_connection;
mod spooled_body;
pub(super) mod worker_connection;

pub(super) use spooled_body::SpooledBody;
