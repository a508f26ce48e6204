//! The events that a decoder yields, with and without a borrow of the bytes.

use std::ops::Range;

use crate::protocol::close_frame::CloseReason;
use crate::protocol::frame::OpCode;

/// The bytes of a message.
#[derive(Debug)]
pub enum DecodedPayload<'a> {
    /// In the fed bytes.
    Fed(&'a [u8]),
    /// Put together by the decoder. May be taken; what is left is used for the next message.
    Assembled(&'a mut Vec<u8>),
}

impl DecodedPayload<'_> {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            DecodedPayload::Fed(bytes) => bytes,
            DecodedPayload::Assembled(bytes) => bytes,
        }
    }
}

/// What the peer has sent.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A whole text message; UTF-8.
    Text(DecodedPayload<'a>),
    /// A whole binary message.
    Binary(DecodedPayload<'a>),
    /// A ping, to be answered with a pong of the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The peer closes; nothing after it counts.
    Close(CloseReason<'a>),
}

/// How a caller wants to receive messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadMode {
    Message,
    Chunks,
    Discard,
}

/// An event that borrows nothing, so that it can be kept across a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    pub(crate) place: StepBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// A whole message, or a chunk of one. A rest is a whole message but for the chunks of it that were shown: if it is
    /// text it may begin within a character.
    Data { is_text: bool, is_last: bool, is_rest: bool },
    /// A whole control frame.
    Control(OpCode),
}

/// A whole message in one plain frame at the start of the input. Its offsets count from there: a
/// frame that is read this way has 65,549 bytes at most, wherever in a buffer it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeFrame {
    /// Offset of the payload.
    pub(super) start: u32,
    /// End of the payload and of the frame.
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

    /// Returns where the payload lies in a buffer in which the frame ends at `end`.
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

/// Where the bytes of an event are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepBytes {
    Fed(Range<usize>),
    Assembled,
    Control(u8),
}
