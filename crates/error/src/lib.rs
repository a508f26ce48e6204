//! Rookery error.
