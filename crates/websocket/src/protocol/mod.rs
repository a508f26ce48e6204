//! The protocol without I/O.

mod close;
mod decoder;
mod encoder;
mod frame;
mod handshake;
mod mask;
mod utf8;

pub use close::{CloseCode, CloseReason, REASON_MAX};
pub use decoder::{Decoder, Event, Limits, Payload, Role, Violation};
pub use encoder::{encode_close, encode_control, encode_frame};
pub use frame::{Header, Incomplete, MAX_HEADER, OpCode};
pub use handshake::{AcceptKey, accept_key};
pub use mask::{MaskKey, unmask};
pub use utf8::Utf8Stream;
