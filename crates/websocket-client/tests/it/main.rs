//! Tests of clients over real sockets, against this project's server and against hand-written
//! servers.

mod addresses;
mod endings;
mod groups;
mod handshakes;
mod limits;
mod messages;
mod support;
mod tls;
