//! WebSockets, from the accepted handshake to the end: limits, memory and the way to the application. What the
//! protocol asks for is decided in the core (`rookery_websocket::endpoint`). How the application
//! runs is not known here, nor how the handshake came.

mod compressing;
mod compression;
pub(crate) mod driver;
pub(crate) mod handshake;
pub(crate) mod mailbox;
pub(crate) mod relay;
mod room;
pub(crate) mod shared;
mod shell;
pub(crate) mod sockets;
