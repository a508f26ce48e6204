//! HTTP/1.1 and HTTP/2: connections, requests and responses, with their deadlines, limits,
//! compression and error responses. The code depends neither on the kind of application nor on the
//! kind of socket.
//!
//! - The hyper library drives an HTTP/1.1 connection. The h2 library drives an HTTP/2 connection,
//!   in which each stream has an `HttpConnection` of its own.
//! - Each request has a request context: the server's data about the request, from the time when
//!   its head is complete until its response is complete.

pub(crate) mod connection;
pub(crate) mod http2;
pub(crate) mod http_state;
pub(crate) mod listener_config;
pub(crate) mod request;
pub(crate) mod response;
