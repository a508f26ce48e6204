//! Sockets: listening ones, connected ones, and their descriptors, which nobody else sees.

pub(crate) mod addresses;
pub(crate) mod descriptor;
pub(crate) mod given;
pub(crate) mod listen;
pub(crate) mod literal;
pub(crate) mod own_address;
pub(crate) mod proxies;
pub mod proxy_header;
mod socket;
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod unix;
pub(crate) mod unix_stream;
