//! HTTP/2.

pub(crate) mod attacks;
mod malformed_heads;
mod provoked_resets;
mod requests;
mod small_frames;
mod stream_ends;
pub(crate) mod websocket;
