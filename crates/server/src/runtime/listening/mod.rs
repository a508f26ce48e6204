//! The I/O thread's listeners: accepting connections, pausing, and draining.

pub(super) mod accept_switch;
mod acceptor;
pub(super) mod active_listener;
pub(super) mod drain;
pub(super) mod socket_group;
