//! Black-box tests over real sockets, with a small application in place of R.

mod http;
mod support;
mod websocket;
