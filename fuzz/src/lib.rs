//! The bodies of the fuzz targets, one module per crate under test; `tests/replay.rs` runs them over `corpus/`.

pub mod static_files;
pub mod websocket;
