//! Certificates from an authority, by a server over real sockets.

mod fake;
mod pebble;
mod support;
