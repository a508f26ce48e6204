//! `rookery-websocket`: each target states a property that holds for any bytes.

mod frames;
mod headers;
mod inflate;
// The programs that the crate's own tests run over every pair of operations.
#[path = "../../crates/websocket/tests/it/program/mod.rs"]
mod program;

pub use frames::{websocket_differential, websocket_frames};
pub use headers::{websocket_extensions, websocket_handshake};
pub use inflate::websocket_inflate;

/// A client and a server of ours that do what the input says over a transport that does what the input says, every operation
/// dropped after as many polls as the input says. What was sent is received, whole and in order, until the transport fails.
pub fn websocket_workload(data: &[u8]) {
    if let Some((setup, operations)) = program::parse(data) {
        program::run(&setup, &operations);
    }
}

/// Likewise, both ends split from the start.
pub fn websocket_halves(data: &[u8]) {
    if let Some((setup, operations)) = program::parse(data) {
        program::run(&program::Setup { is_split: true, ..setup }, &operations);
    }
}
