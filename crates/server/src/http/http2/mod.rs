//! HTTP/2 (RFC 9113) over the crate h2: a connection, and its streams, of which each is a [`Connection`](super::connection) to its
//! call. So whatever a call may do, and every limit on it, is as over HTTP/1.1.

#[doc(hidden)]
pub use frames::frames_for_fuzzer;

mod body;
mod carrier;
mod date;
pub(super) mod driver;
mod frames;
mod head;
mod served;
pub(super) mod session;
mod stream;
mod trailers;
mod tunnel;
