//! Counters of the traffic of a connection.

use std::time::Duration;

/// The counters of one connection since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes received, including the heads of the handshake and the frame headers.
    pub bytes_received: u64,
    /// Bytes that the transport has accepted.
    pub bytes_sent: u64,
    /// Messages received, without those that were discarded during a close.
    pub messages_received: u64,
    /// Messages sent or queued.
    pub messages_sent: u64,
    /// Control frames received.
    pub controls_received: u64,
    /// Control frames sent or queued.
    pub controls_sent: u64,
    /// Received frames that did not end their message.
    pub fragments_received: u64,
    /// Frames sent or queued that did not end their message.
    pub fragments_sent: u64,
    /// Bytes of the received messages after decompression.
    pub payload_received: u64,
    /// Bytes of the sent messages before compression.
    pub payload_sent: u64,
    /// Bytes of the messages that were sent compressed, before and after compression.
    pub compressed: (u64, u64),
    /// Messages that `queue` dropped.
    pub dropped: u64,
    /// The round trip of the last ping that was answered.
    pub round_trip: Option<Duration>,
}

impl Statistics {
    /// Returns the number of received frames of any kind.
    pub fn frames_received(&self) -> u64 {
        self.messages_received + self.fragments_received + self.controls_received
    }

    /// Returns the number of frames of any kind that were sent or queued.
    pub fn frames_sent(&self) -> u64 {
        self.messages_sent + self.fragments_sent + self.controls_sent
    }

    /// Returns the size of the messages that were sent compressed, divided by their compressed
    /// size.
    pub fn compression_ratio(&self) -> Option<f64> {
        let (before, after) = self.compressed;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counters, for a person")]
        (after > 0).then(|| before as f64 / after as f64)
    }
}
