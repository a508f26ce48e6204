//! The protocol without I/O.

mod close;
mod closing;
mod decoder;
pub mod deflate;
mod encoder;
mod extensions;
mod frame;
pub mod handshake;
mod mask;
mod utf8;
mod violation;

pub use close::{CloseCode, CloseReason, REASON_MAX};
pub use closing::{Answer, Closing, Ending};
pub use decoder::{Decoded, DecodedPayload, Decoder, DecoderLimits, Role};
#[cfg(feature = "tokio")]
pub(crate) use decoder::{KEPT_BYTES, Quick};
pub(crate) use decoder::{Step, StepBytes, StepKind, Wanted};
pub(crate) use encoder::append_frame;
pub use encoder::{encode_close, encode_control, encode_frame, encode_message};
pub use extensions::{Extension, Extensions, Malformed, Params, Value};
pub(crate) use frame::CONTROL_MAX;
pub use frame::{Header, Incomplete, MAX_HEADER, OpCode};
pub use handshake::{AcceptKey, accept_key};
pub use mask::{MaskKey, unmask};
#[cfg(feature = "tokio")]
pub(crate) use utf8::is_utf8;
pub use utf8::{NotUtf8, Utf8Stream};
pub use violation::Violation;
