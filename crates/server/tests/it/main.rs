//! Black-box tests over real sockets, with a small application in place of R.

mod answering;
#[path = "../application/mod.rs"]
mod application;
mod budget;
mod closing;
mod deflate;
mod files;
mod heads;
mod http;
mod http2;
mod http2_attacks;
mod http2_endings;
mod http2_heads;
mod http2_support;
mod leaving;
mod lifetime;
mod limit_table;
mod limits;
mod off_thread;
mod proxy;
mod receiving;
mod reports;
mod seats;
mod send_queue;
mod slow;
mod spool;
mod stopping;
mod streams;
mod support;
mod tls;
mod tls_certificates;
mod tls_late;
mod tls_peers;
mod tls_support;
mod websocket;
