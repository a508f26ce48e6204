//! WebSockets, from the accepted handshake to the end: frames to messages and back, limits and closing. How the application
//! runs is not known here, nor how the handshake came.

pub(crate) mod driver;
pub(crate) mod handshake;
pub(crate) mod mailbox;
mod room;
mod send_queue;
pub(crate) mod shared;
pub(crate) mod sockets;
