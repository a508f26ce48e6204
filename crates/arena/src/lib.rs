//! Rookery arena.
