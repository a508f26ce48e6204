//! Tests of clients over real sockets, against this project's server and against hand-written
//! servers.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod addresses;
mod endings;
mod groups;
mod handshakes;
mod limits;
mod messages;
mod support;
mod tls;
