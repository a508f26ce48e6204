//! The Rust half of the R package.
