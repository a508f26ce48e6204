//! Counters of a WebSocket connection's messages, frames and bytes.

use std::time::Duration;

/// The counters of one WebSocket connection since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The number of bytes received from the peer, including frame headers and the HTTP head of the
    /// opening handshake.
    pub bytes_received: u64,
    /// The number of bytes that the transport has accepted for sending.
    pub bytes_sent: u64,
    /// The number of messages received, without those that were discarded during a close.
    pub messages_received: u64,
    /// The number of messages that were sent or queued.
    pub messages_sent: u64,
    /// The number of control frames (pings, pongs and close frames) received.
    pub controls_received: u64,
    /// The number of control frames (pings, pongs and close frames) that were sent or queued.
    pub controls_sent: u64,
    /// The number of received frames that did not end their message.
    pub fragments_received: u64,
    /// The number of frames that were sent or queued and did not end their message.
    pub fragments_sent: u64,
    /// The total size in bytes of the received messages after decompression.
    pub payload_received: u64,
    /// The total size in bytes of the sent messages before compression.
    pub payload_sent: u64,
    /// Two totals in bytes for the messages that were sent compressed: their size before
    /// compression, and their size after it.
    pub compressed: (u64, u64),
    /// The number of messages that a connection's method `queue` dropped because the send queue was
    /// full.
    pub dropped: u64,
    /// The round-trip time of the last ping that was answered.
    pub round_trip: Option<Duration>,
}

impl Statistics {
    /// Returns the compression ratio of the messages that were sent compressed: their original size
    /// divided by their compressed size. Returns `None` if there are none.
    pub fn compression_ratio(&self) -> Option<f64> {
        let (before, after) = self.compressed;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counters, for a person")]
        (after > 0).then(|| before as f64 / after as f64)
    }
}
