//! The decoder of a WebSocket connection, which turns received bytes into messages.
//!
//! The decoder receives bytes as they arrive, split anywhere, and returns one event at a time. An
//! event borrows its bytes from the input or from the decoder:
//! - A message is not copied if it consists of one uncompressed frame that the input contains
//!   completely.
//! - Any other message is assembled in a buffer. The buffer grows with the bytes that have been
//!   received, and never with a length that the peer has only announced.

mod event;
mod limits;

use std::ops::Range;

pub use self::event::{Decoded, DecodedPayload};
pub(crate) use self::event::{ReadMode, Step, StepBytes, StepKind, WholeFrame};
pub use self::limits::DecoderLimits;
pub(crate) use self::limits::KEPT_BYTES;
use self::limits::{CHUNK_MAX, compressed_max};
use crate::protocol::close_frame::CloseReason;
use crate::protocol::deflate::Inflater;
use crate::protocol::frame::{CONTROL_MAX, Header, Incomplete, MAX_HEADER, OpCode};
use crate::protocol::mask::{MaskKey, unmask};
use crate::protocol::role::Role;
use crate::protocol::utf8::{Utf8Stream, is_utf8};
use crate::protocol::violation::Violation;

/// The decoder of a WebSocket connection, which turns received bytes into messages and control
/// frames.
///
/// # Allocation
/// For messages that arrive whole, none. Other messages need an assembly buffer, which is kept for
/// the next message unless the caller takes it ([`DecodedPayload::Assembled`]).
/// [`Decoder::release`] removes the buffer of an idle decoder.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: DecoderLimits,
    inflater: Option<Box<Inflater>>,
    /// The received bytes of a frame header that is not complete yet.
    partial: [u8; MAX_HEADER],
    partial_len: u8,
    /// The header of the frame whose payload is being read.
    frame: Option<Header>,
    /// The number of bytes of the current frame's payload that have been read.
    done: u64,
    /// The number of frames received so far that did not end their message.
    fragments: u64,
    /// The state of the message that is being assembled, if any.
    message: Option<Assembly>,
    /// The bytes of the message that is being assembled, after decompression.
    assembled: Vec<u8>,
    /// True if the bytes in `assembled` were returned to the caller and have to be cleared.
    is_shown: bool,
    /// True if decompression stopped because one step has reached its maximum output. The next step
    /// continues without new input.
    is_stalled: bool,
    /// The payload of a control frame that is not complete yet. It is on the heap because few
    /// connections need it.
    control: Option<Box<[u8; CONTROL_MAX as usize]>>,
}

#[derive(Debug, Clone, Copy)]
struct Assembly {
    is_text: bool,
    is_compressed: bool,
    fragments: u32,
    /// The total length, before decompression, that the headers of the current message's frames
    /// have announced.
    announced: u64,
    /// The number of decompressed bytes of the current message that were returned as chunks or
    /// discarded.
    shown: u64,
    consumed: Consumed,
    utf8: Utf8Stream,
}

/// What happened to the bytes of a message that are no longer in `assembled`, the assembly buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumed {
    /// No bytes of the message have been removed from the assembly buffer.
    Nothing,
    /// Some bytes of the message were returned as chunks, so only the rest of the message can still
    /// be returned.
    Shown,
    /// Some bytes of the message were discarded, so the rest of the message is discarded as well.
    Discarded,
}

impl Decoder {
    /// Returns a decoder for a new WebSocket connection without extensions.
    pub fn new(role: Role, limits: DecoderLimits) -> Decoder {
        Decoder {
            role,
            limits,
            inflater: None,
            partial: [0; MAX_HEADER],
            partial_len: 0,
            frame: None,
            done: 0,
            fragments: 0,
            message: None,
            assembled: Vec::new(),
            is_shown: false,
            is_stalled: false,
            control: None,
        }
    }

    /// Returns a decoder for a new WebSocket connection with compression (permessage-deflate).
    pub fn with_inflater(role: Role, limits: DecoderLimits, inflater: Inflater) -> Decoder {
        Decoder { inflater: Some(Box::new(inflater)), ..Decoder::new(role, limits) }
    }

    /// Decodes bytes from `input`, and unmasks them in place. Returns the number of bytes consumed,
    /// and an event if one is complete. After an event, call this method again with the remaining
    /// input. Without an event, all of `input` is consumed, unless decompression has paused
    /// ([`Decoder::is_stalled`]).
    ///
    /// # Errors
    /// A [`Violation`] if the peer violates the protocol. The decoder must not be used afterwards.
    pub fn decode<'a>(
        &'a mut self,
        input: &'a mut [u8],
    ) -> Result<(usize, Option<Decoded<'a>>), Violation> {
        let (n, step) = self.step(input, ReadMode::Message)?;
        let Some(step) = step else { return Ok((n, None)) };
        let event = match step.kind {
            StepKind::Data { is_text, .. } => {
                let payload = match step.place {
                    StepBytes::Fed(range) => DecodedPayload::Fed(&input[range]),
                    _ => DecodedPayload::Assembled(&mut self.assembled),
                };
                if is_text { Decoded::Text(payload) } else { Decoded::Binary(payload) }
            }
            StepKind::Control(opcode) => {
                let payload = match step.place {
                    StepBytes::Fed(range) => &input[range],
                    _ => self.kept(&step.place),
                };
                match opcode {
                    OpCode::Ping => Decoded::Ping(payload),
                    OpCode::Pong => Decoded::Pong(payload),
                    _ => Decoded::Close(CloseReason::parse(payload)?),
                }
            }
        };
        Ok((n, Some(event)))
    }

    /// Returns true if the decoder is between two messages, so that no message or frame is
    /// incomplete.
    pub fn is_idle(&self) -> bool {
        self.message.is_none() && self.frame.is_none() && self.partial_len == 0
    }

    /// Returns a number of bytes that the caller can read without reading past the end of the
    /// current message or frame. It is 0 between two messages.
    pub fn missing(&self) -> u64 {
        /// The length in bytes of the shortest header of a client's frame (RFC 6455, 5.2).
        const MASKED: u8 = 6;
        /// The length in bytes of the shortest header of a server's frame (RFC 6455, 5.2).
        const PLAIN: u8 = 2;
        match &self.frame {
            _ if self.is_idle() => 0,
            Some(frame) => frame.len.saturating_sub(self.done).max(1),
            None => {
                let shortest = if self.role == Role::Server { MASKED } else { PLAIN };
                u64::from(shortest.saturating_sub(self.partial_len).max(1))
            }
        }
    }

    /// Returns the number of bytes of memory that the decoder holds for the current message. This
    /// includes a decompressor that was borrowed from the thread-local pool.
    pub fn capacity(&self) -> usize {
        self.assembled.capacity() + self.inflater.as_ref().map_or(0, |inflater| inflater.held())
    }

    /// Returns the number of frames received so far that did not end their message.
    pub fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Removes the assembly buffer of an idle connection from the decoder and returns it. Returns
    /// `None` while a message is incomplete.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        if self.message.is_some() || self.assembled.capacity() == 0 {
            return None;
        }
        self.is_shown = false;
        let mut buffer = std::mem::take(&mut self.assembled);
        buffer.clear();
        Some(buffer)
    }

    /// Gives the decoder a buffer for assembling messages, if the decoder has none. The buffer's
    /// contents are discarded.
    pub fn lend(&mut self, mut buffer: Vec<u8>) {
        if self.assembled.capacity() == 0 {
            // Otherwise they would become the start of the next message, unchecked even if that is
            // text.
            buffer.clear();
            self.assembled = buffer;
        }
    }

    /// Returns true if the decoder is stalled: it can continue without new input, because more of a
    /// compressed message has to be decompressed. See [`Inflater::in_steps`].
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Returns true if the decoder has a buffer for assembling messages.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_buffer(&self) -> bool {
        self.assembled.capacity() > 0
    }

    /// Returns the buffer with the message that was assembled.
    pub(crate) fn assembled_mut(&mut self) -> &mut Vec<u8> {
        &mut self.assembled
    }

    /// Returns the bytes of a decoded event if the decoder keeps them, and an empty slice if they
    /// are in the input. `place` says where the bytes are.
    pub(crate) fn kept(&self, place: &StepBytes) -> &[u8] {
        match place {
            StepBytes::Fed(_) => &[],
            StepBytes::Assembled => &self.assembled,
            StepBytes::Control(len) => {
                self.control.as_deref().map_or(&[], |kept| &kept[..usize::from(*len)])
            }
        }
    }

    /// Decodes bytes like [`Decoder::decode`], but returns a step (an event that borrows nothing).
    pub(crate) fn step(
        &mut self,
        input: &mut [u8],
        mode: ReadMode,
    ) -> Result<(usize, Option<Step>), Violation> {
        if self.is_shown {
            self.clear_shown();
        }
        if let Some(frame) = self.decode_whole_frame(input) {
            let (n, step) = frame.into_step();
            return Ok((n, Some(step)));
        }
        self.step_general(input, mode)
    }

    /// Decodes input for [`Decoder::step`], except in the most common case, a whole uncompressed
    /// message in one frame. It is a separate function, because its code would otherwise make the
    /// common case save more registers.
    #[inline(never)]
    fn step_general(
        &mut self,
        input: &mut [u8],
        mode: ReadMode,
    ) -> Result<(usize, Option<Step>), Violation> {
        let mut at = 0;
        loop {
            let frame = match self.frame {
                Some(frame) => frame,
                None => match self.read_header(&input[at..])? {
                    (n, Some(frame)) => {
                        at += n;
                        frame
                    }
                    (n, None) => return Ok((at + n, None)),
                },
            };
            let left = usize::try_from(frame.len - self.done).unwrap_or(usize::MAX);
            let start = at;
            at += left.min(input.len() - at);
            if let Some(mask) = frame.mask {
                unmask(mask.advanced((self.done & 3) as usize), &mut input[start..at]);
            }
            let done = self.done;
            self.done += (at - start) as u64;
            let is_complete = self.done == frame.len;
            if frame.opcode.is_control() {
                let read = self.done as usize;
                let is_whole = is_complete && read == at - start;
                if !is_whole {
                    let kept =
                        self.control.get_or_insert_with(|| Box::new([0; CONTROL_MAX as usize]));
                    kept[read - (at - start)..read].copy_from_slice(&input[start..at]);
                }
                if !is_complete {
                    return Ok((at, None));
                }
                self.frame = None;
                let place = if is_whole {
                    StepBytes::Fed(start..at)
                } else {
                    StepBytes::Control(frame.len as u8)
                };
                return Ok((at, Some(Step { kind: StepKind::Control(frame.opcode), place })));
            }
            let is_last = is_complete && frame.fin;
            let (taken, step) = self.take_payload(&input[start..at], start..at, is_last, mode)?;
            if self.is_stalled {
                at = start + taken;
                self.give_back(&frame, &mut input[at..start + (self.done - done) as usize]);
            } else if is_complete {
                self.frame = None;
            }
            if step.is_some() || (self.is_stalled && mode == ReadMode::Message) {
                return Ok((at, step));
            }
            if !is_complete && !self.is_stalled {
                return Ok((at, None));
            }
        }
    }

    /// Decodes the common case: no message is incomplete, and the input begins with a whole
    /// uncompressed data frame whose payload is shorter than 64 KiB. In all other cases, including
    /// protocol violations, changes nothing and returns `None`. The caller then uses
    /// [`Decoder::step`].
    #[inline]
    pub(crate) fn decode_whole_frame(&mut self, input: &mut [u8]) -> Option<WholeFrame> {
        let [first, second, ..] = *input else { return None };
        let is_masked = second & 0x80 != 0;
        let is_text = first == 0x80 | OpCode::Text as u8;
        if !(is_text || first == 0x80 | OpCode::Binary as u8)
            || is_masked != (self.role == Role::Server)
            || self.partial_len != 0
            || self.frame.is_some()
            || self.message.is_some()
        {
            return None;
        }
        let (len, mut start) = match second & 0x7F {
            0x7F => return None,
            0x7E => {
                let [_, _, high, low, ..] = *input else { return None };
                let len = usize::from(u16::from_be_bytes([high, low]));
                if len <= CONTROL_MAX as usize {
                    return None;
                }
                (len, 4)
            }
            len => (usize::from(len), 2),
        };
        if len as u64 > self.limits.message {
            return None;
        }
        let mut mask = None;
        if is_masked {
            let key = input.get(start..start + 4)?;
            mask = Some(MaskKey([key[0], key[1], key[2], key[3]]));
            start += 4;
        }
        let end = start + len;
        let payload = input.get_mut(start..end)?;
        if let Some(mask) = mask {
            unmask(mask, payload);
        }
        if is_text && !is_utf8(payload) {
            // Masks the payload again, so that the general path finds the error.
            if let Some(mask) = mask {
                unmask(mask, payload);
            }
            return None;
        }
        Some(WholeFrame { start: start as u32, end: end as u32, is_text })
    }

    /// Gives back `rest`, the bytes of a payload that were unmasked but not consumed, by masking
    /// them again.
    #[cold]
    fn give_back(&mut self, frame: &Header, rest: &mut [u8]) {
        self.done -= rest.len() as u64;
        if let Some(mask) = frame.mask {
            unmask(mask.advanced((self.done & 3) as usize), rest);
        }
    }

    /// Adds bytes of a payload to the current message. Returns the number of bytes consumed, and a
    /// step (an event) if the message is complete or the caller reads in chunks. Some bytes remain
    /// unconsumed if decompression pauses to limit the size of one step (the decoder is then
    /// stalled).
    fn take_payload(
        &mut self,
        chunk: &[u8],
        fed: Range<usize>,
        mut is_last: bool,
        mode: ReadMode,
    ) -> Result<(usize, Option<Step>), Violation> {
        let message = self.message.as_mut().expect("begun by the frame's header");
        let before = self.assembled.len();
        let mut taken = chunk.len();
        let was_stalled = std::mem::take(&mut self.is_stalled);
        // An empty frame removes no bytes from a message.
        if mode == ReadMode::Discard && (taken > 0 || was_stalled || is_last) {
            message.consumed = Consumed::Discarded;
        }
        let place = if message.is_compressed {
            let inflater = self.inflater.as_mut().expect("checked by the frame's header");
            let limit = self.limits.message - message.shown;
            let is_whole = mode == ReadMode::Message && message.consumed != Consumed::Discarded;
            let stop = before.saturating_add(if is_whole { inflater.stride() } else { CHUNK_MAX });
            taken = inflater.push_until(chunk, &mut self.assembled, limit, stop)?;
            self.is_stalled = self.assembled.len() >= stop;
            is_last &= !self.is_stalled;
            if is_last {
                inflater.finish(&mut self.assembled, limit)?;
            }
            StepBytes::Assembled
        } else if before == 0 && (mode == ReadMode::Chunks || is_last) {
            // No bytes precede the payload, so the fed bytes are returned, whatever their length.
            StepBytes::Fed(fed)
        } else {
            self.assembled.extend_from_slice(chunk);
            StepBytes::Assembled
        };
        let new = if place == StepBytes::Assembled { &self.assembled[before..] } else { chunk };
        if message.is_text {
            message.utf8.push(new).map_err(|_| Violation::Utf8)?;
            if is_last {
                message.utf8.end().map_err(|_| Violation::Utf8)?;
            }
        }
        let (is_text, is_rest) = (message.is_text, message.consumed == Consumed::Shown);
        if message.consumed == Consumed::Discarded {
            message.shown += self.assembled.len() as u64;
            if is_last {
                self.message = None;
            }
            self.clear_shown();
            return Ok((taken, None));
        }
        if is_last {
            self.message = None;
        } else if mode == ReadMode::Message || new.is_empty() {
            return Ok((taken, None));
        } else {
            message.shown += self.assembled.len() as u64;
            message.consumed = Consumed::Shown;
        }
        self.is_shown = place == StepBytes::Assembled;
        Ok((taken, Some(Step { kind: StepKind::Data { is_text, is_last, is_rest }, place })))
    }

    /// Reads a frame header, which may have begun in earlier input, and checks that it is valid at
    /// this point of the message. Returns the number of bytes of `input` that were consumed, and
    /// the header if it is complete.
    fn read_header(&mut self, input: &[u8]) -> Result<(usize, Option<Header>), Violation> {
        let kept = usize::from(self.partial_len);
        let (header, consumed) = if kept == 0 {
            match Header::parse(input)? {
                Ok(found) => found,
                Err(Incomplete(_)) => {
                    self.partial[..input.len()].copy_from_slice(input);
                    self.partial_len = input.len() as u8;
                    return Ok((input.len(), None));
                }
            }
        } else {
            let take = input.len().min(MAX_HEADER - kept);
            self.partial[kept..kept + take].copy_from_slice(&input[..take]);
            match Header::parse(&self.partial[..kept + take])? {
                Ok((header, n)) => {
                    self.partial_len = 0;
                    (header, n - kept)
                }
                Err(Incomplete(_)) => {
                    self.partial_len = (kept + take) as u8;
                    return Ok((take, None));
                }
            }
        };
        self.check(&header)?;
        self.frame = Some(header);
        self.done = 0;
        Ok((consumed, Some(header)))
    }

    fn check(&mut self, header: &Header) -> Result<(), Violation> {
        let is_first = matches!(header.opcode, OpCode::Text | OpCode::Binary);
        // RFC 7692, 6.1: the bit is valid on a message's first frame only, and never on a control
        // frame.
        if header.rsv1 && (self.inflater.is_none() || !is_first) {
            return Err(Violation::ReservedBits);
        }
        if header.mask.is_some() != (self.role == Role::Server) {
            return Err(Violation::Mask);
        }
        if header.opcode.is_control() {
            return Ok(());
        }
        match (&mut self.message, is_first) {
            (None, false) => return Err(Violation::Continuation),
            (Some(_), true) => return Err(Violation::Interleaved),
            (Some(message), false) => {
                message.fragments += 1;
                if message.fragments > self.limits.fragments {
                    return Err(Violation::Fragments);
                }
            }
            (message @ None, true) => {
                *message = Some(Assembly {
                    is_text: header.opcode == OpCode::Text,
                    is_compressed: header.rsv1,
                    fragments: 1,
                    announced: 0,
                    shown: 0,
                    consumed: Consumed::Nothing,
                    utf8: Utf8Stream::default(),
                });
            }
        }
        self.fragments += u64::from(!header.fin);
        let message = self.message.as_mut().expect("begun above");
        message.announced = message.announced.saturating_add(header.len);
        // The announced length is checked, so that a long frame is refused before its payload
        // arrives.
        let limit = if message.is_compressed {
            compressed_max(self.limits.message)
        } else {
            self.limits.message
        };
        if message.announced > limit {
            return Err(Violation::TooBig);
        }
        Ok(())
    }

    fn clear_shown(&mut self) {
        self.is_shown = false;
        self.assembled.clear();
        if self.assembled.capacity() > KEPT_BYTES {
            self.assembled = Vec::new();
        }
    }
}

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod tests;
