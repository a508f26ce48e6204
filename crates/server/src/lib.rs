//! Rookery server.
