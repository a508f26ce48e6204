//! WebSockets over HTTP/1.1.

mod close_events;
pub(crate) mod compression;
mod messages;
mod send_queue;
mod stalled_clients;
