//! HTTP/1.1 and HTTP/2: connections, requests and responses. The hyper library drives an HTTP/1.1
//! connection. The h2 library drives an HTTP/2 connection, which has one `HttpConnection` per
//! stream. Each request has a request context from the time when its head is complete until its
//! response is complete.
//!
//! This module implements deadlines, limits, bodies, compression and error responses. It depends
//! neither on the kind of application nor on the kind of socket.

pub(crate) mod connection;
pub(crate) mod http2;
pub(crate) mod http_state;
pub(crate) mod listener_config;
pub(crate) mod request;
pub(crate) mod response;
