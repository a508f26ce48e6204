//! The messages that a supervisor and a worker send over the control channel.

use std::fmt;

/// The length in bytes of every message on the control channel.
pub const MESSAGE_BYTES: usize = 16;

/// The bytes with which each packet on the control channel begins: "Rk" and the version of the
/// format.
const BEGIN: [u8; 3] = [b'R', b'k', 1];

/// The first bytes of a packet that is an announcement (a worker's list of its static paths) and
/// not a message. The announcement's number (eight bytes) and its contents follow.
#[cfg(target_os = "linux")]
pub(crate) const ANNOUNCEMENT: [u8; 4] = [BEGIN[0], BEGIN[1], BEGIN[2], b'S'];

/// The first bytes of a packet that is an error report and not a message. The encoded
/// [`ErrorReport`](crate::ErrorReport) follows.
#[cfg(target_os = "linux")]
pub(crate) const ERROR_REPORT: [u8; 4] = [BEGIN[0], BEGIN[1], BEGIN[2], b'E'];

/// The offset of the number in a message. The bytes between the message's kind and the number are
/// zero.
const NUMBER_AT: usize = 8;

/// The bit in the number of [`Message::Ready`] that stands for `sees_heads`: the application
/// inspects request heads before bodies arrive.
const SEES_HEADS: u64 = 1;
/// The bit in the number of [`Message::Ready`] that stands for `is_sticky`: the application keeps
/// state for each client.
const IS_STICKY: u64 = 2;

/// A message that a supervisor and a worker exchange over the control channel. Each message is a
/// packet of [`MESSAGE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// To the worker: a health check of the worker's I/O thread. The I/O thread responds with a
    /// [`Pong`](Self::Pong) of the same number, even while R is busy.
    Ping(u64),
    /// To the worker: shut down gracefully, as after SIGTERM. Under R's `serve()`, requests in
    /// progress get up to ten seconds to finish. A process that does not run `serve()` exits at
    /// once. A second `Drain`, or one after [`Stop`](Self::Stop), has no effect.
    Drain,
    /// To the worker: shut down, because the time for its requests is over. Streamed responses are
    /// cut off, under R's `serve()` a request in progress is interrupted after a second, and the
    /// process exits within [`EXIT_TIMEOUT`](crate::EXIT_TIMEOUT) whatever R is doing.
    Stop,
    /// To the worker: interrupt the R code that processes the current request or WebSocket message.
    /// This processing fails, and the worker continues to serve. While R does something else, the
    /// command has no effect.
    Interrupt,
    /// To the worker: run R's garbage collector and return free memory to the system as soon as R
    /// is idle.
    Collect,
    /// To the worker: the supervisor has applied the announcement of static paths with this number,
    /// and all earlier ones.
    Applied(u64),
    /// To the supervisor: the response to the health check [`Ping`](Self::Ping) with this number.
    Pong(u64),
    /// To the supervisor: the worker's server listens and will respond to requests.
    Ready {
        /// Whether the application inspects the head of a request before its body has arrived
        /// (`onHeaders`).
        sees_heads: bool,
        /// Whether the application keeps state for each client between requests, as Shiny sessions
        /// do.
        is_sticky: bool,
    },
    /// To the supervisor: the worker will not respond to new connections, because its server or its
    /// process is ending. The supervisor must send no new requests until the worker reports
    /// [`Ready`](Self::Ready) again, which happens if the application starts another server.
    Leaving,
}

/// The error for a packet on the control channel that is not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedMessage;

impl fmt::Display for MalformedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a packet on the control channel is not a valid message")
    }
}

impl std::error::Error for MalformedMessage {}

impl Message {
    /// Encodes the message as a packet of the control channel.
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (kind, number) = match self {
            Message::Ping(number) => (b'p', number),
            Message::Drain => (b'd', 0),
            Message::Stop => (b's', 0),
            Message::Interrupt => (b'i', 0),
            Message::Collect => (b'c', 0),
            Message::Applied(number) => (b'k', number),
            Message::Pong(number) => (b'P', number),
            Message::Ready { sees_heads, is_sticky } => (
                b'R',
                if sees_heads { SEES_HEADS } else { 0 } | if is_sticky { IS_STICKY } else { 0 },
            ),
            Message::Leaving => (b'L', 0),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..BEGIN.len()].copy_from_slice(&BEGIN);
        bytes[BEGIN.len()] = kind;
        bytes[NUMBER_AT..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// Decodes a packet of the control channel. Accepts only packets that [`encode`](Self::encode)
    /// can produce.
    ///
    /// # Errors
    /// Returns [`MalformedMessage`] for any other packet.
    pub fn decode(packet: &[u8]) -> Result<Message, MalformedMessage> {
        let bytes: &[u8; MESSAGE_BYTES] = packet.try_into().map_err(|_| MalformedMessage)?;
        let (begin, number) = bytes.split_at(NUMBER_AT);
        let number = u64::from_le_bytes(number.try_into().expect("half of sixteen"));
        if begin[..BEGIN.len()] != BEGIN || begin[BEGIN.len() + 1..].iter().any(|byte| *byte != 0) {
            return Err(MalformedMessage);
        }
        match (begin[BEGIN.len()], number) {
            (b'p', number) => Ok(Message::Ping(number)),
            (b'd', 0) => Ok(Message::Drain),
            (b's', 0) => Ok(Message::Stop),
            (b'i', 0) => Ok(Message::Interrupt),
            (b'c', 0) => Ok(Message::Collect),
            (b'k', number) => Ok(Message::Applied(number)),
            (b'P', number) => Ok(Message::Pong(number)),
            (b'R', flags) if flags & !(SEES_HEADS | IS_STICKY) == 0 => Ok(Message::Ready {
                sees_heads: flags & SEES_HEADS != 0,
                is_sticky: flags & IS_STICKY != 0,
            }),
            (b'L', 0) => Ok(Message::Leaving),
            _ => Err(MalformedMessage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Message; 13] = [
        Message::Ping(0),
        Message::Ping(u64::MAX),
        Message::Drain,
        Message::Stop,
        Message::Interrupt,
        Message::Collect,
        Message::Applied(7),
        Message::Pong(0),
        Message::Pong(1 << 63),
        Message::Ready { sees_heads: false, is_sticky: false },
        Message::Ready { sees_heads: true, is_sticky: false },
        Message::Ready { sees_heads: false, is_sticky: true },
        Message::Leaving,
    ];

    #[test]
    fn messages_round_trip() {
        for message in ALL {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
        assert_eq!(Message::Ping(0x0102).encode(), *b"Rk\x01p\0\0\0\0\x02\x01\0\0\0\0\0\0");
    }

    #[test]
    fn rejects_malformed_packets() {
        for message in ALL {
            let bytes = message.encode();
            for len in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..len]), Err(MalformedMessage));
            }
            assert_eq!(Message::decode(&[&bytes[..], b"\0"].concat()), Err(MalformedMessage));
            // With any single byte changed, the packet is malformed or encodes another message.
            for at in 0..bytes.len() {
                // Under Miri each value takes a thousand times as long.
                for other in (0..=u8::MAX).step_by(if cfg!(miri) { 51 } else { 1 }) {
                    let mut bytes = bytes;
                    bytes[at] = other;
                    if let Ok(decoded) = Message::decode(&bytes) {
                        assert_eq!(decoded.encode(), bytes);
                    }
                }
            }
        }
        for wrong in [
            b"Rk\x02p\0\0\0\0\0\0\0\0\0\0\0\0",
            b"Rk\x01x\0\0\0\0\0\0\0\0\0\0\0\0",
            b"Rk\x01p\0\0\0\x01\0\0\0\0\0\0\0\0",
            b"Rk\x01d\0\0\0\0\x01\0\0\0\0\0\0\0",
            b"Rk\x01R\0\0\0\0\x04\0\0\0\0\0\0\0",
            &[0; MESSAGE_BYTES],
        ] {
            assert_eq!(Message::decode(wrong), Err(MalformedMessage), "{wrong:?}");
        }
    }

    /// Checks that [`Message::decode`] accepts random bytes only if encoding the message gives the
    /// same bytes.
    #[test]
    fn random_packets_decode_only_if_they_encode_to_the_same_bytes() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..if cfg!(miri) { 200 } else { 100_000 } {
            let mut bytes = Message::Ping(0).encode();
            for _ in 0..4 {
                // The random numbers come from a xorshift generator.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes[(state % MESSAGE_BYTES as u64) as usize] = (state >> 32) as u8;
            }
            if let Ok(message) = Message::decode(&bytes) {
                assert_eq!(message.encode(), bytes);
            }
        }
    }
}
