//! Rookery exchange.
