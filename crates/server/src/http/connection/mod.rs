//! The connection of an HTTP client, from the handshake to the close.

pub(crate) mod activity;
pub(crate) mod handshake;
pub(crate) mod head_start;
pub(crate) mod http1_driver;
pub(crate) mod http_connection;
pub(crate) mod hyper_io;
pub(crate) mod lingering_close;
