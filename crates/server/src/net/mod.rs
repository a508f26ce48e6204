//! Sockets and transports: listening and connected sockets, TLS, and file descriptors. Code in
//! other folders does not use file descriptors.

pub(crate) mod accepted_socket;
pub(crate) mod addresses;
pub(crate) mod descriptor;
pub(crate) mod inherited_sockets;
pub(crate) mod listen;
pub(crate) mod literal_address;
pub(crate) mod local;
pub(crate) mod network_address;
pub mod proxy_header;
mod socket;
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod trusted_proxies;
pub(crate) mod watched_socket;
