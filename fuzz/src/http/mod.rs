//! The fuzz targets of what arrives on an HTTP connection.

pub mod http2_frames;
pub mod rejected_head;
