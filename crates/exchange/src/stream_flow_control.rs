//! The body of a streamed response, which the application sends in chunks after the head, and the
//! flow control that limits how many bytes wait for the client.
//!
//! # Ground rules
//! - The application counts a chunk with [`StreamFlow::admit`] before it sends the chunk to the
//!   server. The server subtracts the chunk once it has been written to the client's socket.
//! - At most [`QueueLimits::max_stream_queue_size`](crate::QueueLimits::max_stream_queue_size)
//!   bytes of one response may wait to be written. If few bytes are waiting, however, a chunk of
//!   any size is accepted, because the client is not slow then.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The number of bytes waiting to be written to the client at which the application should pause a
/// streamed response.
pub const HIGH_MARK: usize = 64 << 10;

/// The number of bytes waiting to be written to the client at which the server stops asking the
/// application for chunks of a streamed response. It is higher than [`HIGH_MARK`], so that the
/// application can produce the next chunk while the server writes earlier ones.
pub const PULL_HIGH_MARK: usize = 512 << 10;

/// The number of bytes waiting to be written to the client below which the server tells a paused
/// application to continue with a streamed response.
pub const LOW_MARK: usize = 16 << 10;

/// The maximum number of chunks of a streamed response that are on their way to the server. It is
/// limited because even a tiny chunk occupies about 130 bytes in addition to its data.
const MAX_CHUNKS: usize = 256 << 10;

/// The options of a streamed response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own, and any may be asked of a stream"
)]
pub struct StreamOptions {
    /// Whether the application sends a chunk only when the server requests one with
    /// [`Event::Pull`](crate::Event::Pull).
    pub is_pulled: bool,
    /// Whether the head of the streamed response is sent at once instead of with the first chunk.
    pub sends_head_first: bool,
    /// Whether the streamed body consists of server-sent events (HTML, 9.2). Each chunk then
    /// contains one or more complete events.
    pub is_events: bool,
    /// The number of seconds without data after which the server sends a comment in a stream of
    /// server-sent events. The comments keep proxies from closing the connection; 0 disables them.
    pub heartbeat: u16,
    /// Whether the streamed body may be compressed. The server compresses it if the client accepts
    /// compression, the response has no Content-Length, and the content type is compressible.
    /// Compression never delays a chunk.
    pub is_compressible: bool,
}

/// The body of a streamed response: its options and its flow control.
#[derive(Debug, Clone)]
pub struct StreamedBody {
    /// The options of the streamed response.
    pub rules: StreamOptions,
    /// The flow control of the streamed response, which counts the waiting bytes.
    pub flow: Arc<StreamFlow>,
}

/// The decision whether the application may send a chunk of a streamed response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkAdmission {
    /// The application should send the chunk of the streamed response and may continue with the
    /// next one.
    Continue,
    /// The application should send the chunk and then wait for
    /// [`Event::Writable`](crate::Event::Writable).
    Pause,
    /// The client is too slow, and too many bytes of the streamed response are waiting. The
    /// application must not send the chunk and should abort the response with [`StreamEnd::Slow`].
    ClientTooSlow,
    /// The chunk would exceed the response's Content-Length. The application must not send it and
    /// should abort the streamed response.
    ExceedsLength,
    /// The streamed response has ended. The application must not send the chunk.
    Ended,
}

/// The reason why a streamed request or response body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The streamed body is complete. If it is the body of a response, the client's operating
    /// system has received it.
    Done = 0,
    /// The client disconnected before the streamed body was complete.
    Client = 1,
    /// The application failed, or its streamed response is shorter than the Content-Length.
    Error = 2,
    /// The client reads more slowly than the application produces data, or the server has no memory
    /// for the waiting data.
    Slow = 3,
    /// The client stopped reading the streamed response, and did not continue within the time
    /// limit.
    Timeout = 4,
    /// The server ended the stream because it is shutting down.
    Stop = 5,
}

impl StreamEnd {
    /// Converts the number of a reason back to the reason. Returns `None` if no reason has it.
    pub fn of_number(number: u8) -> Option<StreamEnd> {
        use StreamEnd::{Client, Done, Error, Slow, Stop, Timeout};
        [Done, Client, Error, Slow, Timeout, Stop].into_iter().find(|end| *end as u8 == number)
    }

    /// Returns the reason for the end of a stream as one word for applications and logs, such as
    /// `done` or `timeout`.
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

/// The flow control of a streamed response, whose counters the application and the server share.
#[derive(Debug)]
pub struct StreamFlow {
    /// The maximum number of bytes of the streamed response that wait to be written.
    most: usize,
    /// The number of waiting bytes at which the application should pause the streamed response.
    /// This is [`PULL_HIGH_MARK`] if the server asks for each chunk, and otherwise [`HIGH_MARK`],
    /// but never more than `most`, the maximum number of waiting bytes.
    mark: usize,
    /// The Content-Length of the streamed response, or [`NO_LENGTH`] if it has none.
    length: AtomicU64,
    /// The number of bytes of the streamed response that the application has sent so far.
    pushed: AtomicU64,
    waiting: AtomicUsize,
    /// The number of chunks of the streamed response on their way from the application to the
    /// server.
    chunks: AtomicUsize,
    /// Whether the application is waiting for [`Event::Writable`](crate::Event::Writable) before it
    /// continues the streamed response.
    is_awaited: AtomicBool,
    is_over: AtomicBool,
    /// The status code that the client gets if the streamed response fails before any of it has
    /// been sent; 0 means 500.
    failed_status: AtomicU16,
    /// Called when bytes have been written, if another process counts them as well.
    observer: OnceLock<Box<dyn FlowObserver>>,
}

/// An observer of the bytes of a streamed response that are written to the client. The observer
/// runs on the server's thread.
pub trait FlowObserver: Send + Sync + std::fmt::Debug {
    /// Called after bytes have been written.
    fn on_written(&self);
}

const NO_LENGTH: u64 = u64::MAX;

impl StreamedBody {
    /// Creates the body of a streamed response with the options `rules`. `most` is the maximum
    /// number of its bytes that may wait to be written
    /// ([`QueueLimits::max_stream_queue_size`](crate::QueueLimits::max_stream_queue_size)).
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
            failed_status: AtomicU16::new(0),
            observer: OnceLock::new(),
        }
    }

    pub(crate) fn set_length(&self, length: Option<u64>) {
        self.length.store(length.unwrap_or(NO_LENGTH), Ordering::Relaxed);
    }

    // ---- called by the application ----

    /// Decides whether the application may send a chunk of `len` bytes. If so, counts the chunk.
    pub fn admit(&self, len: usize) -> ChunkAdmission {
        if self.is_over() {
            return ChunkAdmission::Ended;
        }
        let given = self.pushed.load(Ordering::Relaxed).saturating_add(len as u64);
        if self.length().is_some_and(|length| given > length) {
            return ChunkAdmission::ExceedsLength;
        }
        // A small backlog does not show that the client is slow, so in that case a chunk of any
        // size is accepted. As a result, a chunk that the server has pulled is never refused.
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
        // Set before the chunk is sent, so that the server sees the flag when it writes the chunk.
        self.is_awaited.store(true, Ordering::Release);
        ChunkAdmission::Pause
    }

    /// Sets the status code that the client gets if the streamed response fails before any of it
    /// has been sent. The default is 500.
    pub fn set_failed_status(&self, status: u16) {
        self.failed_status.store(status, Ordering::Relaxed);
    }

    /// Sets the observer of the bytes that are written. Further calls have no effect.
    pub fn set_observer(&self, observer: Box<dyn FlowObserver>) {
        let _ = self.observer.set(observer);
    }

    // ---- called by both sides ----

    /// Returns the number of bytes of the streamed response that the application has sent and the
    /// server has not yet written to the socket.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns true if the number of waiting bytes is below the high mark, so that the application
    /// may continue the streamed response.
    pub fn has_capacity(&self) -> bool {
        self.waiting() < self.mark
    }

    /// Returns the number of bytes of the streamed response that the application has sent so far.
    pub fn pushed(&self) -> u64 {
        self.pushed.load(Ordering::Relaxed)
    }

    /// Returns the Content-Length of the streamed response, or `None` if it has none.
    pub fn length(&self) -> Option<u64> {
        Some(self.length.load(Ordering::Relaxed)).filter(|length| *length != NO_LENGTH)
    }

    /// Returns true if the streamed response has ended, so that no further chunk is accepted.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    // ---- called by the server ----

    /// Records that a chunk of the streamed response has arrived at the server.
    pub fn on_chunk_arrived(&self) {
        self.chunks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds `len` to the number of waiting bytes, because the server has added bytes of its own to
    /// the streamed body.
    pub fn add_server_bytes(&self, len: usize) {
        self.waiting.fetch_add(len, Ordering::Relaxed);
    }

    /// Records that `len` bytes of the streamed response have been written to the client. Returns
    /// true if the application has paused and the server must now notify it.
    pub fn on_written(&self, len: usize) -> bool {
        let waiting = self.waiting.fetch_sub(len, Ordering::Relaxed) - len;
        if let Some(observer) = self.observer.get().filter(|_| len > 0) {
            observer.on_written();
        }
        waiting < LOW_MARK && self.is_awaited.swap(false, Ordering::Acquire)
    }

    /// Returns the status code that the client gets if nothing has been sent, or 0 for 500.
    pub fn failed_status(&self) -> u16 {
        self.failed_status.load(Ordering::Relaxed)
    }

    /// Records that the streamed response has ended.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// The response body that tells a client of server-sent events to reconnect after five seconds. It
/// is sent with status 200 instead of a response with status 503, because after an error status a
/// browser would never reconnect (HTML, 9.2.3).
pub const EVENTS_RETRY: &str = "retry: 5000\n\n";

/// Returns true if a client with this `Accept` header accepts server-sent events.
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
    fn admits_chunks_up_to_the_marks_and_the_limit() {
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
    fn pulled_streams_have_a_higher_mark() {
        let flow = StreamFlow::new(1 << 20, true);
        assert_eq!(flow.admit(PULL_HIGH_MARK - 1), ChunkAdmission::Continue);
        assert!(flow.has_capacity());
        assert_eq!(flow.admit(1), ChunkAdmission::Pause);
        assert!(!flow.has_capacity());
        flow.on_written(1);
        assert!(flow.has_capacity());
    }

    #[test]
    fn a_pulled_chunk_is_never_refused() {
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
    fn detects_clients_that_accept_events() {
        for (accept, expected) in [
            ("text/event-stream", true),
            ("application/json, Text/Event-Stream;q=0.9", true),
            ("*/*", false),
            ("text/event-streams", false),
            ("", false),
        ] {
            assert_eq!(accepts_events(accept.as_bytes()), expected, "{accept}");
        }
    }

    #[test]
    fn a_chunk_of_any_size_is_admitted_while_little_is_waiting() {
        let flow = StreamFlow::new(100 << 10, false);
        assert_eq!(flow.admit(HIGH_MARK - 1), ChunkAdmission::Continue);
        assert_eq!(flow.admit(1 << 20), ChunkAdmission::Pause);
        assert_eq!(flow.admit(1), ChunkAdmission::ClientTooSlow);
    }

    #[test]
    fn refuses_bytes_beyond_the_content_length() {
        let flow = StreamFlow::new(1000, false);
        flow.set_length(Some(5));
        assert_eq!(flow.admit(3), ChunkAdmission::Continue);
        assert_eq!(flow.admit(3), ChunkAdmission::ExceedsLength);
        assert_eq!((flow.admit(2), flow.pushed()), (ChunkAdmission::Continue, 5));
    }

    #[test]
    fn empty_chunks_are_limited_too() {
        let flow = StreamFlow::new(usize::MAX, false);
        for _ in 0..MAX_CHUNKS {
            assert_eq!(flow.admit(0), ChunkAdmission::Continue);
        }
        assert_eq!(flow.admit(0), ChunkAdmission::ClientTooSlow);
        flow.on_chunk_arrived();
        assert_eq!(flow.admit(0), ChunkAdmission::Continue);
    }
}
