//! Certificates from an authority, by a server over real sockets.

#[path = "../authority/mod.rs"]
mod authority;
mod fake;
mod pebble;
mod support;
