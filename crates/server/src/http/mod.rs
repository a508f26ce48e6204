//! HTTP/1.1 and HTTP/2: connections, requests and responses. A connection drives hyper (HTTP/1.1)
//! or h2 (HTTP/2, with one `HttpConnection` per stream). Each request has a request context, from
//! the end of its head until its response has been made.
//!
//! This module contains deadlines, limits, bodies, compression and rejections. It knows neither
//! what the application is nor what kind of socket a transport is.

pub(crate) mod connection;
pub(crate) mod http2;
pub(crate) mod http_state;
pub(crate) mod listener_config;
pub(crate) mod request;
pub(crate) mod response;
