//! The events that a WebSocket decoder returns: messages and control frames.

use std::ops::Range;

use crate::protocol::close_frame::CloseReason;
use crate::protocol::frame::OpCode;

/// The content of a decoded message: a part of the input, or the decoder's buffer.
#[derive(Debug)]
pub enum DecodedPayload<'a> {
    /// The message is a part of the bytes that were passed to the decoder.
    Fed(&'a [u8]),
    /// The message was assembled in the decoder's buffer. The caller may take the buffer; otherwise
    /// it is reused for the next message.
    Assembled(&'a mut Vec<u8>),
}

impl DecodedPayload<'_> {
    /// Returns the content of the message as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            DecodedPayload::Fed(bytes) => bytes,
            DecodedPayload::Assembled(bytes) => bytes,
        }
    }
}

/// A decoded event: a message or a control frame from the peer.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A whole text message, in valid UTF-8.
    Text(DecodedPayload<'a>),
    /// A whole binary message.
    Binary(DecodedPayload<'a>),
    /// A ping with this payload. It has to be answered with a pong that has the same payload.
    Ping(&'a [u8]),
    /// A pong with this payload.
    Pong(&'a [u8]),
    /// A close frame. All input after it is ignored.
    Close(CloseReason<'a>),
}

/// How a caller receives messages: whole, in chunks as they arrive, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadMode {
    Message,
    Chunks,
    Discard,
}

/// A decoded event that borrows nothing, so that it can be kept across calls of the decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) kind: StepKind,
    pub(crate) place: StepBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// A whole message, or a chunk of one. If `is_rest` is true, earlier chunks of the message were
    /// already returned, so this chunk of a text may begin in the middle of a character.
    Data { is_text: bool, is_last: bool, is_rest: bool },
    /// A whole control frame: a ping, a pong or a close frame.
    Control(OpCode),
}

/// A whole message in one uncompressed frame at the start of the decoder's input. The offsets count
/// from the start of the frame. The frame has at most 65,549 bytes, so the offsets always fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WholeFrame {
    /// The offset of the payload in the frame, after the header.
    pub(super) start: u32,
    /// The offset of the payload's end, which is also the end of the frame.
    pub(super) end: u32,
    pub(crate) is_text: bool,
}

impl WholeFrame {
    /// Returns the length of the whole frame in bytes.
    #[inline]
    pub(crate) fn frame_len(self) -> usize {
        self.end as usize
    }

    /// Returns the length of the frame's payload in bytes.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns the position of the frame's payload in a buffer, if the frame ends at the offset
    /// `end` of the buffer.
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

/// Where the bytes of a decoded event are: in the input or in the decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StepBytes {
    Fed(Range<usize>),
    Assembled,
    Control(u8),
}
