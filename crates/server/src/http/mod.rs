//! HTTP: a connection drives hyper, or h2 with a connection for each stream; a call is one request and its reply. Deadlines, limits,
//! bodies, compression and refusals are here; what the application is, and what a socket is, are not.

mod asking;
pub(crate) mod bodies;
mod body;
mod call;
mod call_parts;
mod chunked;
pub mod compress;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod driver;
mod farewell;
mod greeting;
pub(crate) mod handshakes;
mod head;
mod header_names;
pub(crate) mod http2;
mod hyper_io;
mod receiving;
mod redirect;
mod reply;
mod reply_body;
mod reply_source;
mod sending;
mod service;
pub mod session_cookie;
pub(crate) mod site;
pub(crate) mod spool_folder;
mod standing;
mod static_file;
pub(crate) mod stream;
mod streaming;
pub(crate) mod streams;
mod supervised;
