//! Tests of certificates from an authority, over real sockets.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

#[path = "../authority/mod.rs"]
mod authority;
mod fake;
mod pebble;
mod support;
