//! From bytes to messages.
//!
//! The decoder is fed what has arrived and yields one event at a time, which borrows from what was fed or from the
//! decoder. A message that lies whole in the fed bytes, in one frame, is not copied; any other is put together in a
//! buffer that grows with the bytes received, never with a length that was only announced. All progress lives here:
//! bytes may come in any pieces.

use std::fmt;

use crate::protocol::close::CloseReason;
use crate::protocol::frame::{Header, Incomplete, MAX_HEADER, OpCode};
use crate::protocol::mask::unmask;
use crate::protocol::utf8::Utf8Stream;

/// Which side the decoder is on. A server's peer must mask, a client's must not (RFC 6455, 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads what clients send.
    Server,
    /// Reads what servers send.
    Client,
}

/// What a peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, all its frames together. Default 16 MiB.
    pub message: u64,
    /// Frames of a message, empty ones too: a peer must not keep a message going for ever. Default 4,096.
    pub fragments: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { message: 16 << 20, fragments: 4096 }
    }
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A reserved bit without an extension that uses it (RFC 6455, 5.2).
    ReservedBits,
    /// A reserved opcode.
    OpCode(u8),
    /// A control frame that is not its message's last (5.5).
    FragmentedControl,
    /// A control frame of more than 125 bytes (5.5).
    LongControl,
    /// A length that is not in its shortest form, or has its top bit set (5.2).
    Length,
    /// A client that does not mask, or a server that does (5.1).
    Mask,
    /// A continuation of nothing (5.4).
    Continuation,
    /// A message begun within a message (5.4).
    Interleaved,
    /// Text that is not UTF-8 (8.1).
    Utf8,
    /// A close frame of one byte (5.5.1).
    ClosePayload,
    /// A close code that must not be sent (7.4).
    CloseCode(u16),
    /// A message larger than [`Limits::message`].
    TooBig,
    /// A message in more frames than [`Limits::fragments`].
    Fragments,
}

impl Violation {
    /// The close code that answers it.
    pub fn close_code(self) -> crate::protocol::CloseCode {
        use crate::protocol::CloseCode;
        match self {
            Violation::Utf8 => CloseCode::INVALID,
            Violation::TooBig => CloseCode::TOO_BIG,
            Violation::Fragments => CloseCode::POLICY,
            _ => CloseCode::PROTOCOL,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::ReservedBits => f.write_str("reserved bits set"),
            Violation::OpCode(code) => write!(f, "reserved opcode {code}"),
            Violation::FragmentedControl => f.write_str("fragmented control frame"),
            Violation::LongControl => f.write_str("control frame of more than 125 bytes"),
            Violation::Length => f.write_str("bad frame length"),
            Violation::Mask => f.write_str("wrong masking"),
            Violation::Continuation => f.write_str("continuation of nothing"),
            Violation::Interleaved => f.write_str("message within a message"),
            Violation::Utf8 => f.write_str("text is not UTF-8"),
            Violation::ClosePayload => f.write_str("close frame of one byte"),
            Violation::CloseCode(code) => write!(f, "close code {code} must not be sent"),
            Violation::TooBig => f.write_str("message too big"),
            Violation::Fragments => f.write_str("message in too many frames"),
        }
    }
}

impl std::error::Error for Violation {}

/// The bytes of a message.
#[derive(Debug)]
pub enum Payload<'a> {
    /// In the fed bytes.
    Fed(&'a [u8]),
    /// Put together by the decoder. May be taken; what is left is used for the next message.
    Assembled(&'a mut Vec<u8>),
}

impl Payload<'_> {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Payload::Fed(bytes) => bytes,
            Payload::Assembled(bytes) => bytes,
        }
    }
}

/// What the peer has sent.
#[derive(Debug)]
pub enum Event<'a> {
    /// A whole text message; UTF-8.
    Text(Payload<'a>),
    /// A whole binary message.
    Binary(Payload<'a>),
    /// A ping, to be answered with a pong of the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The peer closes; nothing after it counts.
    Close(CloseReason<'a>),
}

/// The reading half of a connection.
///
/// # Allocation
/// None for messages that come whole; otherwise the buffer of the message, which is kept for the next one unless
/// [`Payload::Assembled`] was taken. An idle decoder holds no buffer.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: Limits,
    /// Bytes of a header that has not come whole.
    partial: [u8; MAX_HEADER],
    partial_len: u8,
    /// The frame whose payload is being read.
    frame: Option<Header>,
    /// Bytes of its payload that have been read.
    done: u64,
    /// The message being put together.
    message: Option<Assembly>,
    /// Its bytes.
    assembled: Vec<u8>,
    /// Whether `assembled` was shown and is to be cleared.
    is_shown: bool,
    /// The payload of a control frame that has not come whole.
    control: [u8; 125],
}

#[derive(Debug, Clone, Copy)]
struct Assembly {
    is_text: bool,
    fragments: u32,
    utf8: Utf8Stream,
}

impl Decoder {
    /// A decoder at the start of a connection.
    pub fn new(role: Role, limits: Limits) -> Decoder {
        Decoder {
            role,
            limits,
            partial: [0; MAX_HEADER],
            partial_len: 0,
            frame: None,
            done: 0,
            message: None,
            assembled: Vec::new(),
            is_shown: false,
            control: [0; 125],
        }
    }

    /// Reads from `input`, which it unmasks in place: how many bytes it consumed, and an event if one is complete.
    /// Without an event all of `input` is consumed; with one, call again with the rest.
    ///
    /// # Errors
    /// When the peer breaks the protocol. Nothing after that means anything.
    pub fn decode<'a>(&'a mut self, input: &'a mut [u8]) -> Result<(usize, Option<Event<'a>>), Violation> {
        if std::mem::take(&mut self.is_shown) {
            self.assembled.clear();
            if self.assembled.capacity() > KEPT_BYTES {
                self.assembled = Vec::new();
            }
        }
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
            let take = left.min(input.len() - at);
            if let Some(mask) = frame.mask {
                unmask(mask.advanced((self.done & 3) as usize), &mut input[at..at + take]);
            }
            let is_whole = self.done == 0 && take == left;
            let start = at;
            at += take;
            self.done += take as u64;
            let is_complete = self.done == frame.len;
            if is_complete {
                self.frame = None;
                self.done = 0;
            }
            if frame.opcode.is_control() {
                if !is_whole {
                    let read = if is_complete { frame.len as usize } else { self.done as usize };
                    self.control[read - take..read].copy_from_slice(&input[start..at]);
                }
                if !is_complete {
                    return Ok((at, None));
                }
                let payload = if is_whole { &input[start..at] } else { &self.control[..frame.len as usize] };
                return Ok((at, Some(control_event(frame.opcode, payload)?)));
            }
            if frame.fin && is_whole && frame.opcode != OpCode::Continuation {
                self.message = None;
                let payload = &input[start..at];
                let is_text = frame.opcode == OpCode::Text;
                if is_text && simdutf8::basic::from_utf8(payload).is_err() {
                    return Err(Violation::Utf8);
                }
                let payload = Payload::Fed(payload);
                return Ok((at, Some(if is_text { Event::Text(payload) } else { Event::Binary(payload) })));
            }
            let piece = &input[start..at];
            let message = self.message.as_mut().expect("begun by read_header");
            if message.is_text {
                message.utf8.push(piece).map_err(|_| Violation::Utf8)?;
            }
            self.assembled.extend_from_slice(piece);
            if is_complete && frame.fin {
                let is_text = message.is_text;
                if is_text {
                    message.utf8.end().map_err(|_| Violation::Utf8)?;
                }
                self.message = None;
                self.is_shown = true;
                let payload = Payload::Assembled(&mut self.assembled);
                return Ok((at, Some(if is_text { Event::Text(payload) } else { Event::Binary(payload) })));
            }
            if !is_complete {
                return Ok((at, None));
            }
        }
    }

    /// Whether the connection is between two messages.
    pub fn is_idle(&self) -> bool {
        self.message.is_none() && self.frame.is_none() && self.partial_len == 0
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
        Ok((consumed, Some(header)))
    }

    fn check(&mut self, header: &Header) -> Result<(), Violation> {
        if header.rsv1 {
            return Err(Violation::ReservedBits);
        }
        if header.mask.is_some() != (self.role == Role::Server) {
            return Err(Violation::Mask);
        }
        if header.opcode.is_control() {
            return Ok(());
        }
        match (&mut self.message, header.opcode) {
            (None, OpCode::Continuation) => return Err(Violation::Continuation),
            (Some(message), OpCode::Continuation) => {
                message.fragments += 1;
                if message.fragments > self.limits.fragments {
                    return Err(Violation::Fragments);
                }
            }
            (Some(_), _) => return Err(Violation::Interleaved),
            (message @ None, opcode) => {
                *message = Some(Assembly {
                    is_text: opcode == OpCode::Text,
                    fragments: 1,
                    utf8: Utf8Stream::default(),
                });
            }
        }
        // Announced, not received: refused before it is waited for.
        if header.len.saturating_add(self.assembled.len() as u64) > self.limits.message {
            return Err(Violation::TooBig);
        }
        Ok(())
    }
}

fn control_event(opcode: OpCode, payload: &[u8]) -> Result<Event<'_>, Violation> {
    Ok(match opcode {
        OpCode::Ping => Event::Ping(payload),
        OpCode::Pong => Event::Pong(payload),
        _ => Event::Close(CloseReason::parse(payload)?),
    })
}

/// A larger buffer is not kept for the next message: an idle connection must not hold a burst's memory.
const KEPT_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests;
