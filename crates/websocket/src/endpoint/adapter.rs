//! What the core does not know: the clock, the memory, what is counted. A adapter brings it along.

use std::time::Duration;

use crate::endpoint::statistics::Statistics;
use crate::protocol::MaskKey;

/// What drives an [`Endpoint`](crate::endpoint::Endpoint) over a transport, by the types and constants in which two of them
/// differ.
///
/// The trait is sealed: it is implemented by this crate's [`Connection`](crate::Connection) and by
/// this project's server, and may get further items in any release.
/// ```compile_fail,E0277
/// use rookery_websocket::{Statistics, endpoint::{CloseMode, Adapter}, protocol::MaskKey};
/// struct Own;
/// impl Adapter for Own {
///     type Time = std::time::Duration;
///     type Payload = Vec<u8>;
///     type Counters = Statistics;
///     const BUFFER_SIZE: usize = 0;
///     const COPY_MAX: usize = 0;
///     const SENDS_REASON: bool = false;
///     const CLOSE_MODE: CloseMode = CloseMode::Prompt;
///     fn bytes(payload: &Vec<u8>) -> &[u8] { payload }
///     fn mask() -> MaskKey { unimplemented!() }
///     fn take_buffer() -> Vec<u8> { Vec::new() }
///     fn return_buffer(_: Vec<u8>) {}
/// }
/// ```
pub trait Adapter: Sealed {
    /// What it tells the time by.
    type Time: Time;
    /// A payload that it hands over to be sent from where it lies.
    type Payload;
    /// What it counts: [`Statistics`], or nothing.
    type Counters: Counters;

    /// Bytes of frames in one buffer, past which the next frame begins another. Frames that are joined leave in one write.
    const BUFFER_SIZE: usize;
    /// Bytes up to which a payload that was handed over is copied behind its header, and given back.
    const COPY_MAX: usize;
    /// Whether a peer that broke the protocol is told how, and not only with which code.
    const SENDS_REASON: bool;
    /// How a connection is left that failed, or whose peer ended its stream without a close frame.
    const CLOSE_MODE: CloseMode;

    /// The bytes of a payload.
    fn bytes(payload: &Self::Payload) -> &[u8];

    /// A fresh key from a strong source (RFC 6455, 5.3). Asked of a client only.
    fn mask() -> MaskKey;

    /// An empty buffer to encode into.
    fn take_buffer() -> Vec<u8>;

    /// Takes back a buffer that nothing is left in.
    fn return_buffer(buffer: Vec<u8>);
}

/// Seals [`Adapter`]. Whoever implements it is not covered by this crate's promise of compatibility;
/// it is public only because the server that does is a crate of its own.
#[doc(hidden)]
pub trait Sealed {}

/// How a connection is left that can not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// As one that its caller drops next: what is there of the peer's is thrown away, and then the stream is ended. When the peer
    /// has ended its stream, nothing more is written.
    Prompt,
    /// As one that stays until the peer has gone: the stream is ended, and all that still comes is thrown away until the peer
    /// ends its own, or the time of a close is over. When the peer has ended its stream first, what is queued is still written.
    Lingering,
}

/// A point in time, of whatever clock the adapter has.
pub trait Time: Copy {
    /// The difference of two.
    type Span: Copy;

    /// The time `span` after this one. One that has no end counts as the longest there is.
    #[must_use]
    fn after(self, span: Self::Span) -> Self;

    /// Whether it is `deadline` or later.
    fn has_reached(self, deadline: Self) -> bool;

    /// From `sent` to now, by a clock fine enough to measure it.
    fn round_trip(self, sent: Self) -> Option<Duration> {
        let _ = sent;
        None
    }
}

/// Since some moment that the adapter has chosen.
impl Time for Duration {
    type Span = Duration;

    fn after(self, span: Duration) -> Duration {
        self.saturating_add(span)
    }

    fn has_reached(self, deadline: Duration) -> bool {
        self >= deadline
    }

    fn round_trip(self, sent: Duration) -> Option<Duration> {
        Some(self.saturating_sub(sent))
    }
}

/// What the adapter allows and how long it waits; all connections of a server share one.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rules<Span> {
    /// From a step of the closing to the end of the connection, if no other step follows.
    pub close_timeout: Span,
    /// Between two pings; without it none are sent but those asked for.
    pub ping_interval: Option<Span>,
    /// How long nothing at all may come after a ping. Without it a ping only keeps the way open: it carries nothing, and none is
    /// added to what is already waiting to be written.
    pub ping_timeout: Option<Span>,
    /// Bytes waiting to be written from which on a peer counts as one that does not keep up: only its newest ping is
    /// answered, or one that pings and never reads would fill memory.
    pub high_water: usize,
}

impl<Span> Rules<Span> {
    /// Rules without pings: `close` and `mark` are the fields of the same names.
    pub fn new(close_timeout: Span, high_water: usize) -> Rules<Span> {
        Rules { close_timeout, ping_interval: None, ping_timeout: None, high_water }
    }

    /// Sends a ping every `interval`, and with `silence` gives up a peer that sends nothing for so
    /// long after one.
    #[must_use]
    pub fn pings(self, interval: Span, timeout: Option<Span>) -> Rules<Span> {
        Rules { ping_interval: Some(interval), ping_timeout: timeout, ..self }
    }
}

/// Where counters are kept, if they are. [`Statistics`] keeps them, and `()` does not; nothing else
/// implements it.
pub trait Counters: Default + private::Sealed {
    /// Counts.
    fn count(&mut self, count: impl FnOnce(&mut Statistics));
}

impl Counters for Statistics {
    #[inline]
    fn count(&mut self, count: impl FnOnce(&mut Statistics)) {
        count(self);
    }
}

mod private {
    /// Seals [`Counters`](super::Counters).
    pub trait Sealed {}
    impl Sealed for super::Statistics {}
    impl Sealed for () {}
}

/// Nothing is counted, and no memory held for it.
impl Counters for () {
    #[inline]
    fn count(&mut self, _count: impl FnOnce(&mut Statistics)) {}
}
