//! HTTP/2, by a client that sends raw frames and by the client of the crate h2.

pub(crate) mod attacks;
mod malformed_heads;
mod provoked_resets;
mod proxied_clients;
mod requests;
mod small_frames;
mod stream_ends;
pub(crate) mod websocket;
