//! Fuzz targets of `rookery-websocket`. Each checks a property that holds for any input.

#![allow(clippy::disallowed_methods, reason = "a fuzz target may panic")]

mod frames;
mod headers;
mod inflate;
// The workloads that the crate's own tests run with every pair of operations.
#[path = "../../tests/it/program/mod.rs"]
mod program;

pub use frames::{websocket_differential, websocket_frames};
pub use headers::{websocket_extensions, websocket_handshake};
pub use inflate::websocket_inflate;

/// Runs a client and a server of ours whose operations, and whose transport's behaviour, the input
/// determines. Each operation is dropped after as many polls as the input says. Sent messages must
/// be received complete and in order until the transport fails.
pub fn websocket_workload(data: &[u8]) {
    if let Some((setup, operations)) = program::parse(data) {
        program::run(&setup, &operations);
    }
}

/// Does the same with both connections split from the start.
pub fn websocket_halves(data: &[u8]) {
    if let Some((setup, operations)) = program::parse(data) {
        program::run(&program::Setup { is_split: true, ..setup }, &operations);
    }
}
