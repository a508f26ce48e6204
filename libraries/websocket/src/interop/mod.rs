//! Connections as other libraries want them: as a stream of bytes, as a stream and a sink of
//! messages, over TLS, with JSON.

mod byte_stream;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "stream")]
mod message_stream;
#[cfg(feature = "tls")]
mod tls;

pub use byte_stream::ByteStream;
#[cfg(feature = "stream")]
pub use message_stream::MessageStream;
#[cfg(feature = "tls")]
pub use tls::{connect_tls, rustls};
