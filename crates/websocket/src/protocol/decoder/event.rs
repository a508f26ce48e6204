//! The events that a decoder yields.

use std::ops::Range;

use crate::protocol::close_frame::CloseReason;
use crate::protocol::frame::OpCode;

/// The bytes of a message.
#[derive(Debug)]
pub enum DecodedPayload<'a> {
    /// A part of the fed bytes.
    Fed(&'a [u8]),
    /// The decoder's assembly buffer. The caller may take it; a buffer that is left is reused for
    /// the next message.
    Assembled(&'a mut Vec<u8>),
}

impl DecodedPayload<'_> {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            DecodedPayload::Fed(bytes) => bytes,
            DecodedPayload::Assembled(bytes) => bytes,
        }
    }
}

/// An event: what the peer has sent.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A whole text message, in UTF-8.
    Text(DecodedPayload<'a>),
    /// A whole binary message.
    Binary(DecodedPayload<'a>),
    /// A ping, which has to be answered with a pong that has the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// A close frame. Everything after it is ignored.
    Close(CloseReason<'a>),
}

/// The way in which a caller receives messages: whole, in chunks as they arrive, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadMode {
    Message,
    Chunks,
    Discard,
}

/// An event that borrows nothing, so that it can be kept across calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    pub(crate) place: StepBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// A whole message or a chunk. A rest is the part of a message that follows the chunks which
    /// have been returned; a rest of a text message may begin within a character.
    Data { is_text: bool, is_last: bool, is_rest: bool },
    /// A whole control frame.
    Control(OpCode),
}

/// A whole message in one uncompressed frame at the start of the input. The offsets count from
/// there. Such a frame has at most 65,549 bytes, wherever in a buffer it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeFrame {
    /// The offset of the payload.
    pub(super) start: u32,
    /// The end of the payload, which is also the end of the frame.
    pub(super) end: u32,
    pub(crate) is_text: bool,
}

impl WholeFrame {
    /// Returns the length of the whole frame.
    #[inline]
    pub(crate) fn frame_len(self) -> usize {
        self.end as usize
    }

    /// Returns the length of the payload.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns the position of the payload in a buffer in which the frame ends at `end`.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn range_before(self, end: usize) -> Range<usize> {
        end - self.len()..end
    }

    pub(super) fn into_step(self) -> (usize, Step) {
        let kind = StepKind::Data { is_text: self.is_text, is_last: true, is_rest: false };
        (
            self.frame_len(),
            Step { kind, place: StepBytes::Fed(self.start as usize..self.end as usize) },
        )
    }
}

/// The location of an event's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepBytes {
    Fed(Range<usize>),
    Assembled,
    Control(u8),
}
