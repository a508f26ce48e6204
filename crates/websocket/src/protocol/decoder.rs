//! From bytes to messages.
//!
//! The decoder is fed what has arrived and yields one event at a time, which borrows from what was fed or from the
//! decoder. A message that lies whole in the fed bytes, in one plain frame, is not copied; any other is put together in
//! a buffer that grows with the bytes received, never with a length that was only announced. All progress lives here:
//! bytes may come in any chunks.

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

/// The reading half of a connection.
///
/// # Allocation
/// None for messages that come whole; otherwise the buffer of the message, which is kept for the next one unless
/// [`DecodedPayload::Assembled`] was taken, and an idle decoder gives back with [`Decoder::release`].
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: DecoderLimits,
    inflater: Option<Box<Inflater>>,
    /// Bytes of a header that has not come whole.
    partial: [u8; MAX_HEADER],
    partial_len: u8,
    /// The frame whose payload is being read.
    frame: Option<Header>,
    /// Bytes of its payload that have been read.
    done: u64,
    /// Frames so far that did not end their message.
    fragments: u64,
    /// The message being put together.
    message: Option<Assembly>,
    /// Its bytes, inflated.
    assembled: Vec<u8>,
    /// Whether `assembled` was shown and is to be cleared.
    is_shown: bool,
    /// Whether a chunk was full before all of what came was inflated: the next step goes on without new bytes.
    is_stalled: bool,
    /// The payload of a control frame that has not come whole. On the heap: few connections ever need it.
    control: Option<Box<[u8; CONTROL_MAX as usize]>>,
}

#[derive(Debug, Clone, Copy)]
struct Assembly {
    is_text: bool,
    is_compressed: bool,
    fragments: u32,
    /// Bytes announced by its frames, as they are on the wire.
    announced: u64,
    /// Bytes inflated and already shown as chunks, or thrown away.
    shown: u64,
    consumed: Consumed,
    utf8: Utf8Stream,
}

/// What became of the bytes of a message that are no longer here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumed {
    /// All are here.
    Nothing,
    /// Some were shown as chunks: what is left is the rest.
    Shown,
    /// Some were thrown away: what is left is nobody's.
    Discarded,
}

impl Decoder {
    /// A decoder at the start of a connection without extensions.
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

    /// A decoder at the start of a connection that agreed on permessage-deflate.
    pub fn with_inflater(role: Role, limits: DecoderLimits, inflater: Inflater) -> Decoder {
        Decoder { inflater: Some(Box::new(inflater)), ..Decoder::new(role, limits) }
    }

    /// Reads from `input`, which it unmasks in place: how many bytes it consumed, and an event if one is complete.
    /// Without an event all of `input` is consumed, unless it is [stalled](Self::is_stalled); with one, call again with the rest.
    ///
    /// # Errors
    /// When the peer breaks the protocol. Nothing after that means anything.
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

    /// Whether the connection is between two messages.
    pub fn is_idle(&self) -> bool {
        self.message.is_none() && self.frame.is_none() && self.partial_len == 0
    }

    /// Returns how many bytes can be read without reading past the end of the message or frame that has begun. 0 between
    /// two messages.
    pub fn missing(&self) -> u64 {
        /// Bytes of the shortest header of a client's frame, and of a server's (RFC 6455, 5.2).
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

    /// Bytes of memory held for the message that is being put together, a lent state of the inflater's included.
    pub fn capacity(&self) -> usize {
        self.assembled.capacity() + self.inflater.as_ref().map_or(0, |inflater| inflater.held())
    }

    /// Frames so far that did not end their message.
    pub fn fragments(&self) -> u64 {
        self.fragments
    }

    /// Gives the message buffer away if no message is half read: an idle connection needs none.
    pub fn release(&mut self) -> Option<Vec<u8>> {
        if self.message.is_some() || self.assembled.capacity() == 0 {
            return None;
        }
        self.is_shown = false;
        let mut buffer = std::mem::take(&mut self.assembled);
        buffer.clear();
        Some(buffer)
    }

    /// Lends a buffer for the next message that has to be put together, if there is none. What is in it is thrown away.
    pub fn lend(&mut self, mut buffer: Vec<u8>) {
        if self.assembled.capacity() == 0 {
            // Else it would be the start of the next message, and were that text, unchecked.
            buffer.clear();
            self.assembled = buffer;
        }
    }

    /// Whether it goes on without new bytes: more of a message is to be inflated, see [`Inflater::in_steps`].
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Whether the decoder has a buffer to put a message together in.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_buffer(&self) -> bool {
        self.assembled.capacity() > 0
    }

    /// The message that was put together.
    pub(crate) fn assembled_mut(&mut self) -> &mut Vec<u8> {
        &mut self.assembled
    }

    /// The bytes of a step that are not in the fed bytes.
    pub(crate) fn kept(&self, place: &StepBytes) -> &[u8] {
        match place {
            StepBytes::Fed(_) => &[],
            StepBytes::Assembled => &self.assembled,
            StepBytes::Control(len) => {
                self.control.as_deref().map_or(&[], |kept| &kept[..usize::from(*len)])
            }
        }
    }

    /// [`Decoder::decode`] without the borrow.
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

    /// What is not one whole frame in the bytes fed. A function of its own, so that the other way saves no registers for it.
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

    /// The common case: between two messages, and the next is one plain frame that lies whole in `input`, with a length of two
    /// bytes at most. Anything else, and anything wrong, changes nothing and is left to [`Decoder::step`].
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
            // As it came, so that the error is found where it is told.
            if let Some(mask) = mask {
                unmask(mask, payload);
            }
            return None;
        }
        Some(WholeFrame { start: start as u32, end: end as u32, is_text })
    }

    /// Payload that was unmasked and not taken is again what came.
    #[cold]
    fn give_back(&mut self, frame: &Header, rest: &mut [u8]) {
        self.done -= rest.len() as u64;
        if let Some(mask) = frame.mask {
            unmask(mask.advanced((self.done & 3) as usize), rest);
        }
    }

    /// Adds a chunk of payload to the message: the bytes taken, fewer than all if the decoder is stalled then; a step if that
    /// completes the message, or if chunks are mode.
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
        // Empty frames take nothing away.
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
            // Nothing came before it: what is shown lies in the fed bytes, whatever its length.
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

    /// Reads a header from the bytes kept and those that came; checks it against the state of the message.
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
        // RFC 7692, 6.1: on a message's first frame only, and never on a control frame.
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
        // Announced, not received: refused before it is waited for.
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
