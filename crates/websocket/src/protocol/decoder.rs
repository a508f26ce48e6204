//! The decoder, which turns received bytes into messages.
//!
//! The decoder is fed with the bytes as they arrive and yields one event at a time. An event
//! borrows from the fed bytes or from the decoder. A message that is whole in the fed bytes, in one
//! uncompressed frame, is not copied. Any other message is assembled in a buffer, which grows with
//! the bytes received and never with a length that was only announced. The bytes may be split
//! anywhere, because all progress is stored here.

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

/// The reading side of a connection.
///
/// # Allocation
/// Messages that arrive whole allocate nothing. Other messages need the assembly buffer, which is
/// kept for the next message unless [`DecodedPayload::Assembled`] was taken. An idle decoder
/// returns the buffer with [`Decoder::release`].
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: DecoderLimits,
    inflater: Option<Box<Inflater>>,
    /// The bytes of an incomplete header.
    partial: [u8; MAX_HEADER],
    partial_len: u8,
    /// The frame whose payload is being read.
    frame: Option<Header>,
    /// The number of payload bytes of that frame that have been read.
    done: u64,
    /// The number of frames so far that did not end their message.
    fragments: u64,
    /// The message that is being assembled.
    message: Option<Assembly>,
    /// The assembled bytes, decompressed.
    assembled: Vec<u8>,
    /// True if `assembled` was returned to the caller and has to be cleared.
    is_shown: bool,
    /// True if decompression stopped because the output limit of one step was reached. The next
    /// step continues without new bytes.
    is_stalled: bool,
    /// The payload of an incomplete control frame. It is on the heap because few connections need
    /// it.
    control: Option<Box<[u8; CONTROL_MAX as usize]>>,
}

#[derive(Debug, Clone, Copy)]
struct Assembly {
    is_text: bool,
    is_compressed: bool,
    fragments: u32,
    /// The number of bytes that the message's frame headers have announced, before decompression.
    announced: u64,
    /// The number of decompressed bytes that were returned as chunks or discarded.
    shown: u64,
    consumed: Consumed,
    utf8: Utf8Stream,
}

/// The state of those bytes of a message that are no longer in `assembled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumed {
    /// No bytes have been removed.
    Nothing,
    /// Some bytes were returned as chunks, so a whole message can only be the rest.
    Shown,
    /// Some bytes were discarded, so the rest is discarded as well.
    Discarded,
}

impl Decoder {
    /// Returns a decoder for a new connection without extensions.
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

    /// Returns a decoder for a new connection with permessage-deflate.
    pub fn with_inflater(role: Role, limits: DecoderLimits, inflater: Inflater) -> Decoder {
        Decoder { inflater: Some(Box::new(inflater)), ..Decoder::new(role, limits) }
    }

    /// Decodes bytes from `input`, which is unmasked in place. Returns the number of bytes
    /// consumed, and an event if one is complete. Without an event all of `input` is consumed,
    /// unless the decoder is [stalled](Self::is_stalled). With an event, call it again with the
    /// rest.
    ///
    /// # Errors
    /// If the peer violates the protocol. The decoder must not be used after that.
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

    /// Returns true between two messages.
    pub fn is_idle(&self) -> bool {
        self.message.is_none() && self.frame.is_none() && self.partial_len == 0
    }

    /// Returns a number of bytes that can be read without reading past the end of the current
    /// message or frame; 0 between two messages.
    pub fn missing(&self) -> u64 {
        /// Bytes of the shortest header of a client's frame, and of a server's frame (RFC 6455,
        /// 5.2).
        const MASKED: u8 = 6;
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

    /// Returns the number of bytes of memory that the current message occupies, including a
    /// decompressor that the thread has lent.
    pub fn capacity(&self) -> usize {
        self.assembled.capacity() + self.inflater.as_ref().map_or(0, |inflater| inflater.held())
    }

    /// Returns the number of frames so far that did not end their message.
    pub fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Returns the assembly buffer of an idle connection, which needs none. Returns `None` while a
    /// message is incomplete.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        if self.message.is_some() || self.assembled.capacity() == 0 {
            return None;
        }
        self.is_shown = false;
        let mut buffer = std::mem::take(&mut self.assembled);
        buffer.clear();
        Some(buffer)
    }

    /// Gives the decoder an assembly buffer if it has none. The buffer's contents are discarded.
    pub fn lend(&mut self, mut buffer: Vec<u8>) {
        if self.assembled.capacity() == 0 {
            // Otherwise they would become the start of the next message, unchecked even if that is
            // text.
            buffer.clear();
            self.assembled = buffer;
        }
    }

    /// Returns true if the decoder continues without new bytes, because more of a message is to be
    /// decompressed. See [`Inflater::in_steps`].
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Returns true if the decoder has an assembly buffer.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_buffer(&self) -> bool {
        self.assembled.capacity() > 0
    }

    /// Returns the assembled message.
    pub(crate) fn assembled_mut(&mut self) -> &mut Vec<u8> {
        &mut self.assembled
    }

    /// Returns the bytes of a step if they are stored in the decoder.
    pub(crate) fn kept(&self, place: &StepBytes) -> &[u8] {
        match place {
            StepBytes::Fed(_) => &[],
            StepBytes::Assembled => &self.assembled,
            StepBytes::Control(len) => {
                self.control.as_deref().map_or(&[], |kept| &kept[..usize::from(*len)])
            }
        }
    }

    /// Does what [`Decoder::decode`] does, and returns a step, which borrows nothing.
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

    /// Handles everything except a whole frame in the input. As a separate function it does not
    /// force the common path to save registers.
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

    /// Decodes the common case: no message is incomplete, and the input begins with one whole
    /// uncompressed frame whose length has at most two bytes. For anything else, including any
    /// violation, changes nothing and returns `None`; [`Decoder::step`] handles that.
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

    /// Masks payload again that was unmasked but not consumed.
    #[cold]
    fn give_back(&mut self, frame: &Header, rest: &mut [u8]) {
        self.done -= rest.len() as u64;
        if let Some(mask) = frame.mask {
            unmask(mask.advanced((self.done & 3) as usize), rest);
        }
    }

    /// Adds payload to the message. Returns the number of bytes consumed, which is less than all if
    /// the decoder is stalled, and a step if the message is complete or chunks are requested.
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

    /// Reads a header from the stored and the new bytes, and checks it against the state of the
    /// message.
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
