//! WebSockets, from the accepted handshake to the end: limits, memory and the way to the application. What the
//! protocol asks for is decided in the core (`rookery_websocket::endpoint`). How the application
//! runs is not known here, nor how the handshake came.

mod adapter;
mod compressed_send;
mod compression;
pub(crate) mod context;
pub(crate) mod driver;
mod frame_tracker;
pub(crate) mod handle;
pub(crate) mod handshake;
mod memory;
pub(crate) mod registry;
pub(crate) mod tunnel;
