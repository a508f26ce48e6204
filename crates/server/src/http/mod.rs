//! HTTP: a connection drives hyper, or h2 with a connection for each stream; a request context is one request and its response. Deadlines,
//! limits, bodies, compression and refusals are here; what the application is, and what a socket is, are not.

pub(crate) mod connection;
pub(crate) mod http2;
pub(crate) mod http_state;
pub(crate) mod listener_config;
pub(crate) mod request;
pub(crate) mod response;
