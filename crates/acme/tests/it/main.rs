//! Tests of certificates from an authority, over real sockets.

#[path = "../authority/mod.rs"]
mod authority;
mod fake;
mod pebble;
mod support;
