//! What went over a connection.

use std::time::Duration;

/// Counters of one connection, since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes received, heads and framing included.
    pub bytes_received: u64,
    /// Bytes the transport took.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Messages sent or queued.
    pub messages_sent: u64,
    /// Control frames received.
    pub controls_received: u64,
    /// Bytes of the messages received, inflated.
    pub payload_received: u64,
    /// Bytes of the messages sent, before compression.
    pub payload_sent: u64,
    /// Bytes of the messages that were sent compressed, before and after.
    pub compressed: (u64, u64),
    /// Messages that `queue` dropped.
    pub dropped: u64,
    /// From the last ping to its pong.
    pub round_trip: Option<Duration>,
}

impl Statistics {
    /// Bytes before compression per byte after it, of the messages sent compressed.
    pub fn compression_ratio(&self) -> Option<f64> {
        let (before, after) = self.compressed;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counters, for a person")]
        (after > 0).then(|| before as f64 / after as f64)
    }
}
