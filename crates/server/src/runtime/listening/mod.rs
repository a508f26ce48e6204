//! The I/O thread's listeners: accepting connections, and draining.

mod acceptor;
pub(super) mod active_listener;
pub(super) mod drain;
