//! The WebSocket protocol (RFC 6455), with nothing allocated per frame.
//!
//! [`protocol`] is sans-IO: bytes in, events out, no socket, no clock, no randomness and no async runtime. The server
//! drives it with its own sockets; anyone else can as well.

pub mod protocol;
