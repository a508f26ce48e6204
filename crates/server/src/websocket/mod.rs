//! WebSockets, from the accepted handshake to the close: their limits, their memory, and their
//! messages to and from the application. The protocol itself is implemented in
//! `rookery_websocket::endpoint`. This module depends neither on the kind of application nor on the
//! HTTP version of the handshake.

mod compressed_send;
mod compression;
pub(crate) mod context;
pub(crate) mod driver;
mod endpoint_config;
pub(crate) mod handle;
pub(crate) mod handshake;
mod memory;
pub(crate) mod registry;
pub(crate) mod shiny_messages;
