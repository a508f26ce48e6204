//! HTTP/2 (RFC 9113) over the crate h2: a connection, and its streams, of which each is a [`Connection`](super::connection::http_connection::HttpConnection) to its
//! call. So whatever a call may do, and every limit on it, is as over HTTP/1.1.

#[doc(hidden)]
pub use frames::frames_for_fuzzer;

mod date;
pub(super) mod driver;
mod frames;
mod h2_io;
mod request_head;
pub(super) mod session;
mod stream;
mod stream_body;
mod stream_guard;
mod trailers;
mod websocket_transport;
