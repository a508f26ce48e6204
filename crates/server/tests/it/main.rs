//! Black-box tests over real sockets, with a small application in place of R.
#![allow(clippy::large_types_passed_by_value, reason = "a test starts few servers")]
#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![cfg_attr(not(unix), allow(unused_imports))] // Tests on Unix systems use them.

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
#[cfg(target_os = "linux")]
mod worker;
