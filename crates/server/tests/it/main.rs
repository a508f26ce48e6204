//! Black-box tests over real sockets, with a small application in place of R.

#[path = "../application/mod.rs"]
mod application;
mod http;
mod http2;
mod lifecycle;
mod limits;
mod response_stream;
mod support;
mod tls;
mod transports;
mod websocket;
mod worker;
