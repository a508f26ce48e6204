//! An HTTP/1.1 and WebSocket server that hands exchanges to an application over a [`Link`](rookery_exchange::Link).

pub mod compress;
mod config;
pub mod static_files;

pub use config::{Config, Limits};
