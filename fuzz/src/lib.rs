//! The bodies of the fuzz targets, one module per crate under test; `tests/` runs them over `corpus/`.

pub mod acme;
pub mod arena;
pub mod error;
pub mod http2_frames;
pub mod proxy_header;
pub mod settings;
pub mod static_files;
pub mod websocket;
pub mod worker;
pub mod worker_response;
