//! The interface between a WebSocket endpoint (the protocol core without I/O) and its adapter,
//! which supplies a clock, buffers, counters and limits.

use std::time::Duration;

use crate::endpoint::statistics::Statistics;
use crate::protocol::MaskKey;

/// The code that does the I/O for an [`Endpoint`](crate::endpoint::Endpoint) (the protocol core
/// without I/O). The trait's items are the types, constants and functions in which adapters differ.
///
/// The trait is sealed: only this crate's [`Connection`](crate::Connection) and this project's
/// server implement it. It may get further items in any release.
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
    /// The type of the points in time on the adapter's clock.
    type Time: Time;
    /// The type of a message's payload. A large payload is written directly from this type, without
    /// being copied into the send queue's buffer.
    type Payload;
    /// The type of the connection's counters: [`Statistics`], or `()` to count nothing.
    type Counters: Counters;

    /// The number of bytes at which a buffer of the send queue is full, so that the next frame
    /// begins another buffer. The frames in one buffer are written together.
    const BUFFER_SIZE: usize;
    /// The maximum size in bytes of a payload that is copied into the send queue, behind its
    /// frame's header. After the copy, the payload is returned to the caller. Larger payloads are
    /// queued without a copy.
    const COPY_MAX: usize;
    /// True if the close frame that is sent after a protocol violation contains a textual reason
    /// besides the close code.
    const SENDS_REASON: bool;
    /// How a connection is closed after a failure, or after the peer ended its byte stream without
    /// a close frame.
    const CLOSE_MODE: CloseMode;

    /// Returns the bytes of a message's payload.
    fn bytes(payload: &Self::Payload) -> &[u8];

    /// Returns a fresh masking key for a frame, from a strong random source (RFC 6455, 5.3). It is
    /// called for clients only.
    fn mask() -> MaskKey;

    /// Returns an empty buffer for encoded frames.
    fn take_buffer() -> Vec<u8>;

    /// Takes back an empty buffer that the endpoint no longer needs.
    fn return_buffer(buffer: Vec<u8>);
}

/// Seals [`Adapter`], so that other crates do not implement it. This trait is public only because
/// the server, which implements it, is a separate crate. Other implementations are not covered by
/// this crate's promise of compatibility.
#[doc(hidden)]
pub trait Sealed {}

/// How a WebSocket connection is closed after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// The mode for a transport that is dropped directly after the close: first discard the input
    /// that has already arrived, then shut down the sending side. If the peer has already ended its
    /// stream, write nothing more.
    Prompt,
    /// The mode for a transport that stays open until the peer has closed it: first shut down the
    /// sending side, then discard input until the peer ends its stream or [`Rules::close_timeout`]
    /// has passed. If the peer has already ended its stream, still write queued output.
    Lingering,
}

/// A point in time on the clock of an adapter (the code that drives a WebSocket endpoint).
pub trait Time: Copy {
    /// The type of a duration: the difference of two points in time.
    type Span: Copy;

    /// Returns the point in time `span` after this one. If it exceeds the clock's range, returns
    /// the latest possible time.
    #[must_use]
    fn after(self, span: Self::Span) -> Self;

    /// Returns true if this time is `deadline` or later.
    fn has_reached(self, deadline: Self) -> bool;

    /// Returns the round-trip time of a ping that was sent at `sent` and answered at this point in
    /// time. Returns `None` if the clock is too coarse to measure a round trip.
    fn round_trip(self, sent: Self) -> Option<Duration> {
        let _ = sent;
        None
    }
}

/// A point in time as the duration since a moment that the adapter chooses.
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

/// The timeouts and limits of WebSocket endpoints. All connections of a server share one value.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rules<Span> {
    /// The maximum time for each step of closing a connection. After it, the step is given up.
    pub close_timeout: Span,
    /// The interval between two keep-alive pings. If it is `None`, only requested pings are sent.
    pub ping_interval: Option<Span>,
    /// The time that the peer may stay silent after a ping. If it is `None`, a silent peer is never
    /// given up: pings only prevent middleboxes from closing an idle connection. Such pings are
    /// empty, and are sent only while no other output is queued.
    pub ping_timeout: Option<Span>,
    /// The number of bytes in the send queue at which the peer counts as slow. Only the newest ping
    /// of a slow peer is answered, because a peer that sends pings and never reads could otherwise
    /// fill the memory with pongs.
    pub high_water: usize,
}

impl<Span> Rules<Span> {
    /// Returns rules without keep-alive pings. `high_water` is the number of queued bytes at which
    /// the peer counts as slow.
    pub fn new(close_timeout: Span, high_water: usize) -> Rules<Span> {
        Rules { close_timeout, ping_interval: None, ping_timeout: None, high_water }
    }

    /// Returns these rules with a keep-alive ping every `interval`. With a `timeout`, a peer that
    /// sends nothing for that long after a ping counts as lost.
    #[must_use]
    pub fn pings(self, interval: Span, timeout: Option<Span>) -> Rules<Span> {
        Rules { ping_interval: Some(interval), ping_timeout: timeout, ..self }
    }
}

/// A store for the counters of a connection. [`Statistics`] counts, and `()` does not; there are no
/// other implementations.
pub trait Counters: Default + private::Sealed {
    /// Calls `count` with the counters, or does nothing if this store does not count.
    fn count(&mut self, count: impl FnOnce(&mut Statistics));
}

impl Counters for Statistics {
    #[inline]
    fn count(&mut self, count: impl FnOnce(&mut Statistics)) {
        count(self);
    }
}

mod private {
    /// Seals [`Counters`](super::Counters), so that other crates do not implement it.
    pub trait Sealed {}
    impl Sealed for super::Statistics {}
    impl Sealed for () {}
}

/// A store of counters that counts nothing and needs no memory.
impl Counters for () {
    #[inline]
    fn count(&mut self, _count: impl FnOnce(&mut Statistics)) {}
}
