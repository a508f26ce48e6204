//! Black-box tests over real sockets, with a small application in place of R.

mod http;
mod limits;
mod support;
mod websocket;
