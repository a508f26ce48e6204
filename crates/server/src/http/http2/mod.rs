//! The implementation of HTTP/2 (RFC 9113) with the h2 library. Each stream has an
//! [`HttpConnection`](super::connection::http_connection::HttpConnection) of its own, so requests
//! have the same features and limits as over HTTP/1.1.

#[doc(hidden)]
pub use frames::frames_for_fuzzer;

pub(super) mod connection_state;
mod date;
pub(super) mod driver;
mod frame_header;
mod frames;
mod h2_io;
mod header_table;
mod request_head;
mod stream_body;
mod stream_guard;
mod stream_task;
mod trailers;
mod wasted_requests;
mod websocket_transport;
