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
    /// Messages received. Those that a close threw away are not counted.
    pub messages_received: u64,
    /// Messages sent or queued.
    pub messages_sent: u64,
    /// Control frames received.
    pub controls_received: u64,
    /// Control frames sent or queued.
    pub controls_sent: u64,
    /// Frames received that did not end their message.
    pub fragments_received: u64,
    /// Frames sent or queued that did not end their message.
    pub fragments_sent: u64,
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
    /// Frames of any kind received.
    pub fn frames_received(&self) -> u64 {
        self.messages_received + self.fragments_received + self.controls_received
    }

    /// Frames of any kind sent or queued.
    pub fn frames_sent(&self) -> u64 {
        self.messages_sent + self.fragments_sent + self.controls_sent
    }

    /// Bytes before compression per byte after it, of the messages sent compressed.
    pub fn compression_ratio(&self) -> Option<f64> {
        let (before, after) = self.compressed;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counters, for a person")]
        (after > 0).then(|| before as f64 / after as f64)
    }
}
