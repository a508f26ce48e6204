//! The WebSocket protocol without I/O: frames, messages, handshakes and compression.

mod close_code;
mod close_frame;
mod closing_handshake;
mod decoder;
pub mod deflate;
mod encoder;
mod extensions;
mod frame;
pub mod handshake;
mod mask;
mod role;
mod utf8;
mod violation;

pub use close_code::CloseCode;
pub use close_frame::{CloseReason, REASON_MAX};
pub use closing_handshake::{Answer, Closing, Ending};
pub use decoder::{Decoded, DecodedPayload, Decoder, DecoderLimits};
#[cfg(feature = "tokio")]
pub(crate) use decoder::{KEPT_BYTES, WholeFrame};
pub(crate) use decoder::{ReadMode, Step, StepBytes, StepKind};
pub(crate) use encoder::append_frame;
pub use encoder::{encode_close, encode_control, encode_frame, encode_message};
pub use extensions::{Extension, Extensions, Malformed, Params, Value};
pub(crate) use frame::CONTROL_MAX;
pub use frame::{Header, Incomplete, MAX_HEADER, OpCode};
pub use handshake::{AcceptKey, accept_key};
pub use mask::{MaskKey, unmask};
pub use role::Role;
#[cfg(feature = "tokio")]
pub(crate) use utf8::is_utf8;
pub use utf8::{NotUtf8, Utf8Stream};
pub use violation::Violation;
