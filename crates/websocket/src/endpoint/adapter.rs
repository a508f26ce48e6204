//! The interface between an endpoint and its adapter: clock, buffers, counters and limits.

use std::time::Duration;

use crate::endpoint::statistics::Statistics;
use crate::protocol::MaskKey;

/// The types and constants by which the adapters that drive an
/// [`Endpoint`](crate::endpoint::Endpoint) differ.
///
/// The trait is sealed. This crate's [`Connection`](crate::Connection) and this project's server
/// implement it, and it may get further items in any release.
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
    /// The clock.
    type Time: Time;
    /// A payload that is written from where it is, without a copy.
    type Payload;
    /// The counters: [`Statistics`], or `()` to count nothing.
    type Counters: Counters;

    /// Bytes of frames in one buffer. The next frame begins another buffer; the frames of one
    /// buffer are written together.
    const BUFFER_SIZE: usize;
    /// The largest payload that is copied behind its header and returned to the caller. Larger
    /// payloads are queued without a copy.
    const COPY_MAX: usize;
    /// True if the close frame after a protocol violation has a reason besides its code.
    const SENDS_REASON: bool;
    /// How a failed connection is closed, and one whose peer ended its stream without a close
    /// frame.
    const CLOSE_MODE: CloseMode;

    /// Returns the bytes of a payload.
    fn bytes(payload: &Self::Payload) -> &[u8];

    /// Returns a fresh masking key from a strong source (RFC 6455, 5.3). Called for clients only.
    fn mask() -> MaskKey;

    /// Returns an empty buffer for encoded frames.
    fn take_buffer() -> Vec<u8>;

    /// Takes back an empty buffer.
    fn return_buffer(buffer: Vec<u8>);
}

/// Seals [`Adapter`]. The trait is public only because the server, which implements it, is a
/// separate crate. Other implementations are not covered by this crate's promise of compatibility.
#[doc(hidden)]
pub trait Sealed {}

/// The way to close a connection after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// For a transport that is dropped next: discards the input that has arrived, then shuts the
    /// stream down. When the peer has ended its stream, nothing more is written.
    Prompt,
    /// For a transport that stays open until the peer has closed it: shuts the stream down, then
    /// discards input until the peer ends its stream or [`Rules::close_timeout`] has passed. When
    /// the peer has ended its stream first, the queue is still written.
    Lingering,
}

/// A point in time, of the adapter's clock.
pub trait Time: Copy {
    /// The difference of two points in time.
    type Span: Copy;

    /// Returns the time `span` after this one. A span that exceeds the clock's range gives the
    /// latest possible time.
    #[must_use]
    fn after(self, span: Self::Span) -> Self;

    /// Returns true if this time is `deadline` or later.
    fn has_reached(self, deadline: Self) -> bool;

    /// Returns the time between `sent` and now, if the clock is fine enough to measure a round
    /// trip.
    fn round_trip(self, sent: Self) -> Option<Duration> {
        let _ = sent;
        None
    }
}

/// The time since a moment that the adapter chooses.
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

/// Timeouts and limits of an endpoint. All connections of a server share one value.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rules<Span> {
    /// The time that one step of the close may take before the connection is ended.
    pub close_timeout: Span,
    /// The interval between two pings. Without it, only requested pings are sent.
    pub ping_interval: Option<Span>,
    /// The time that the peer may stay silent after a ping. Without it, a ping only keeps the path
    /// through middleboxes open: such a ping is empty, and is not sent while other output is
    /// queued.
    pub ping_timeout: Option<Span>,
    /// The number of queued bytes at which a peer counts as slow. Of a slow peer's pings only the
    /// newest is answered, because otherwise a peer that pings and never reads would fill memory.
    pub high_water: usize,
}

impl<Span> Rules<Span> {
    /// Returns rules without pings.
    pub fn new(close_timeout: Span, high_water: usize) -> Rules<Span> {
        Rules { close_timeout, ping_interval: None, ping_timeout: None, high_water }
    }

    /// Sends a ping every `interval`. With `timeout`, gives up a peer that sends nothing for that
    /// long after a ping.
    #[must_use]
    pub fn pings(self, interval: Span, timeout: Option<Span>) -> Rules<Span> {
        Rules { ping_interval: Some(interval), ping_timeout: timeout, ..self }
    }
}

/// A store of counters. [`Statistics`] counts and `()` does not; there are no other
/// implementations.
pub trait Counters: Default + private::Sealed {
    /// Applies `count` to the counters.
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

/// Counts nothing and needs no memory.
impl Counters for () {
    #[inline]
    fn count(&mut self, _count: impl FnOnce(&mut Statistics)) {}
}
