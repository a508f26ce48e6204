//! A reply whose body comes in chunks, after the reply: what it is, and how much of it waits.
//!
//! # Ground rules
//! - The application counts a piece in ([`StreamFlow::admit`]) before it sends it; the server counts it out when it has been written to
//!   the client's socket. So both know at any time how much waits, wherever it lies.
//! - What waits is bounded: past [`QueueLimits::stream_bytes`](crate::QueueLimits::stream_bytes) nothing more is taken. One piece may
//!   go past it, while less than the stream's mark waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes that wait from which on the application is to wait too, and is not asked for more. As much as one write of a large
/// body, and as uvicorn's mark.
pub const HIGH_MARK: usize = 64 << 10;

/// The same for an application that is asked: it gives nothing but when there is room, so what waits is several chunks and not all that it
/// has. With chunks of 64 KiB one alone would have application and server wait for each other in turn, twice a piece.
pub const PULL_HIGH_MARK: usize = 256 << 10;

/// Bytes that wait below which an application that waits is told to go on: so that it is not told for each piece.
pub const LOW_MARK: usize = 16 << 10;

/// Pieces that may be on their way to the server. Each costs some 130 bytes beside its own, so this is 32 MiB.
const MAX_CHUNKS: usize = 256 << 10;

/// How the server is to treat a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own, and any may be asked of a stream"
)]
pub struct StreamOptions {
    /// The application gives chunks when it is [asked](crate::Event::Pull), and not else.
    pub is_pulled: bool,
    /// The head leaves at once, and does not wait for the first piece.
    pub sends_head_first: bool,
    /// Its bytes are server-sent events (HTML, 9.2), in chunks of whole ones. It begins with a comment, and when its server stops,
    /// it ends in order with a time after which the client is to come again.
    pub is_events: bool,
    /// Seconds without a byte after which events are followed by a comment, for the sake of proxies that cut what is silent;
    /// 0: never.
    pub heartbeat: u16,
    /// It may be compressed, if its client takes that, its headers tell no length, and its type is one that gets smaller (of
    /// events it is not asked). A piece is not held back for that.
    pub is_compressible: bool,
    /// What is answered when it fails before anything of it was sent; 0: 500.
    pub failed_status: u16,
}

/// The body of a reply that comes in chunks.
#[derive(Debug, Clone)]
pub struct StreamedBody {
    /// How it is to be treated.
    pub rules: StreamOptions,
    /// How much of it waits.
    pub flow: Arc<StreamFlow>,
}

/// What the application is told when it has given a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkAdmission {
    /// Send it, and go on.
    Continue,
    /// Send it, and wait for [`Event::Writable`](crate::Event::Room).
    Pause,
    /// Too much waits: it is not to be sent, and the stream to be cut ([`StreamEnd::Slow`]).
    ClientTooSlow,
    /// The reply's Content-Length has fewer bytes: it is not to be sent, and the stream to be cut.
    ExceedsLength,
    /// The stream is over: it is not to be sent.
    Ended,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The client's system has all of it.
    Done = 0,
    /// The client went away.
    Client = 1,
    /// The application failed, or gave fewer bytes than it said.
    Error = 2,
    /// The client takes it more slowly than it is made, or the server has no memory for what waits.
    Slow = 3,
    /// The client took nothing for too long.
    Timeout = 4,
    /// The server stops.
    Stop = 5,
}

impl StreamEnd {
    /// In one word, as applications and logs have it.
    pub fn name(self) -> &'static str {
        match self {
            StreamEnd::Done => "done",
            StreamEnd::Client => "client",
            StreamEnd::Error => "error",
            StreamEnd::Slow => "slow",
            StreamEnd::Timeout => "timeout",
            StreamEnd::Stop => "stop",
        }
    }
}

/// How much of a stream waits to be written: shared by application and server.
#[derive(Debug)]
pub struct StreamFlow {
    /// The most that may wait.
    most: usize,
    /// What waits from which on the application is to wait too: [`HIGH_MARK`] or [`PULL_HIGH_MARK`], or the most if that is less.
    mark: usize,
    /// The reply's Content-Length, [`NO_LENGTH`] without one.
    length: AtomicU64,
    /// Bytes the application has given.
    pushed: AtomicU64,
    waiting: AtomicUsize,
    /// Pieces on their way to the server.
    chunks: AtomicUsize,
    /// Whether the application waits to be told that there is room.
    is_awaited: AtomicBool,
    is_over: AtomicBool,
}

const NO_LENGTH: u64 = u64::MAX;

impl StreamedBody {
    /// A stream of which up to `most` bytes may wait ([`QueueLimits::stream_bytes`](crate::QueueLimits::stream_bytes)).
    pub fn new(rules: StreamOptions, most: usize) -> StreamedBody {
        StreamedBody { rules, flow: Arc::new(StreamFlow::new(most, rules.is_pulled)) }
    }
}

impl StreamFlow {
    pub(crate) fn new(most: usize, is_pulled: bool) -> StreamFlow {
        StreamFlow {
            most,
            mark: most.min(if is_pulled { PULL_HIGH_MARK } else { HIGH_MARK }),
            length: AtomicU64::new(NO_LENGTH),
            pushed: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_length(&self, length: Option<u64>) {
        self.length.store(length.unwrap_or(NO_LENGTH), Ordering::Relaxed);
    }

    // ---- the application's side ----

    /// Counts a piece of `len` bytes in, before it is sent.
    pub fn admit(&self, len: usize) -> ChunkAdmission {
        if self.is_over() {
            return ChunkAdmission::Ended;
        }
        let given = self.pushed.load(Ordering::Relaxed).saturating_add(len as u64);
        if self.length().is_some_and(|length| given > length) {
            return ChunkAdmission::ExceedsLength;
        }
        // What little waits says nothing of the client: a piece is taken then, however large it is. So whoever is asked for one is
        // not refused it.
        let is_behind = self.waiting() >= self.mark;
        let is_full = is_behind && self.waiting() > self.most.saturating_sub(len);
        if is_full || self.chunks.load(Ordering::Relaxed) >= MAX_CHUNKS {
            return ChunkAdmission::ClientTooSlow;
        }
        self.pushed.store(given, Ordering::Relaxed);
        self.chunks.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting.fetch_add(len, Ordering::Relaxed) + len;
        if waiting < self.mark {
            return ChunkAdmission::Continue;
        }
        // Before the piece is sent: the server, which writes it after that, sees it.
        self.is_awaited.store(true, Ordering::Release);
        ChunkAdmission::Pause
    }

    // ---- both sides ----

    /// Bytes that wait: on their way to the server, there, and in no system's buffer yet.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether the application can go on: less waits than its mark.
    pub fn has_capacity(&self) -> bool {
        self.waiting() < self.mark
    }

    /// Bytes the application has given.
    pub fn pushed(&self) -> u64 {
        self.pushed.load(Ordering::Relaxed)
    }

    /// The reply's Content-Length, if it has one.
    pub fn length(&self) -> Option<u64> {
        Some(self.length.load(Ordering::Relaxed)).filter(|length| *length != NO_LENGTH)
    }

    /// Whether it has ended: nobody takes anything any more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    // ---- the server's side ----

    /// A piece has arrived.
    pub fn on_chunk_arrived(&self) {
        self.chunks.fetch_sub(1, Ordering::Relaxed);
    }

    /// The server adds `len` bytes of its own.
    pub fn add_server_bytes(&self, len: usize) {
        self.waiting.fetch_add(len, Ordering::Relaxed);
    }

    /// `len` bytes have been written. Says whether the application is to be told that there is room.
    pub fn on_written(&self, len: usize) -> bool {
        let waiting = self.waiting.fetch_sub(len, Ordering::Relaxed) - len;
        waiting < LOW_MARK && self.is_awaited.swap(false, Ordering::Acquire)
    }

    /// It has ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// What a client that accepts events is told instead of a 503: to come again in a while. At any status but 200 a browser
/// gives up for good (HTML, 9.2.3).
pub const EVENTS_RETRY: &str = "retry: 5000\n\n";

/// Whether a client with this `Accept` takes server-sent events.
pub fn accepts_events(accept: &[u8]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/event-stream")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_limits() {
        let flow = StreamFlow::new(100 << 10, false);
        assert_eq!(flow.admit(HIGH_MARK - 1), ChunkAdmission::Continue);
        assert_eq!(flow.admit(1), ChunkAdmission::Pause);
        assert_eq!(flow.admit(36 << 10), ChunkAdmission::Pause);
        assert_eq!((flow.admit(1), flow.waiting()), (ChunkAdmission::ClientTooSlow, 100 << 10));
        assert!(!flow.on_written((100 << 10) - LOW_MARK));
        assert!(flow.on_written(1), "below the low mark it is told, once");
        assert!(!flow.on_written(1));
        flow.end();
        assert_eq!(flow.admit(1), ChunkAdmission::Ended);
    }

    #[test]
    fn who_is_asked_may_be_further_ahead() {
        let flow = StreamFlow::new(1 << 20, true);
        assert_eq!(flow.admit(PULL_HIGH_MARK - 1), ChunkAdmission::Continue);
        assert!(flow.has_capacity());
        assert_eq!(flow.admit(1), ChunkAdmission::Pause);
        assert!(!flow.has_capacity());
        flow.on_written(1);
        assert!(flow.has_capacity());
    }

    #[test]
    fn who_is_asked_is_never_refused() {
        for most in [1, 30 << 10, 100 << 10, 150 << 10, 1 << 20] {
            for piece in [1, 20 << 10, 64 << 10, 2 << 20] {
                let flow = StreamFlow::new(most, true);
                for _ in 0..100 {
                    let given = flow.admit(piece);
                    assert!(
                        matches!(given, ChunkAdmission::Continue | ChunkAdmission::Pause),
                        "{piece} of {most}: {given:?}"
                    );
                    assert_eq!(given == ChunkAdmission::Continue, flow.has_capacity());
                    if !flow.has_capacity() {
                        flow.on_written(flow.waiting());
                    }
                }
            }
        }
    }

    #[test]
    fn who_accepts_events() {
        for (accept, expected) in [
            ("text/event-stream", true),
            ("application/json, Text/Event-StreamedBody;q=0.9", true),
            ("*/*", false),
            ("text/event-streams", false),
            ("", false),
        ] {
            assert_eq!(accepts_events(accept.as_bytes()), expected, "{accept}");
        }
    }

    #[test]
    fn a_piece_is_taken_however_large_it_is_while_little_waits() {
        let flow = StreamFlow::new(100 << 10, false);
        assert_eq!(flow.admit(HIGH_MARK - 1), ChunkAdmission::Continue);
        assert_eq!(flow.admit(1 << 20), ChunkAdmission::Pause);
        assert_eq!(flow.admit(1), ChunkAdmission::ClientTooSlow);
    }

    #[test]
    fn no_more_than_the_length() {
        let flow = StreamFlow::new(1000, false);
        flow.set_length(Some(5));
        assert_eq!(flow.admit(3), ChunkAdmission::Continue);
        assert_eq!(flow.admit(3), ChunkAdmission::ExceedsLength);
        assert_eq!((flow.admit(2), flow.pushed()), (ChunkAdmission::Continue, 5));
    }

    #[test]
    fn chunks_of_nothing_are_bounded_too() {
        let flow = StreamFlow::new(usize::MAX, false);
        for _ in 0..MAX_CHUNKS {
            assert_eq!(flow.admit(0), ChunkAdmission::Continue);
        }
        assert_eq!(flow.admit(0), ChunkAdmission::ClientTooSlow);
        flow.on_chunk_arrived();
        assert_eq!(flow.admit(0), ChunkAdmission::Continue);
    }
}
