//! TLS: encrypted streams over sockets, and the certificates that the server presents.

pub(crate) mod certificate;
pub(crate) mod certificate_store;
pub(crate) mod challenges;
pub(crate) mod der;
pub(crate) mod development;
mod file_watch;
pub(crate) mod identity;
pub(crate) mod pem;
mod records;
pub(crate) mod resolver;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod tls_error;
