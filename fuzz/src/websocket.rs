//! `rookery-websocket`: each target states a property that holds for any bytes.

mod frames;
mod headers;
mod transport;
mod workload;

pub use frames::{websocket_differential, websocket_frames, websocket_inflate};
pub use headers::{websocket_extensions, websocket_handshake};
pub use workload::websocket_workload;
