//! The limits of what a decoder accepts and of the memory that it keeps.

/// What a peer may send.
///
/// ```
/// use rookery_websocket::protocol::DecoderLimits;
/// const SMALL: DecoderLimits = DecoderLimits::new().message(1 << 10);
/// assert_eq!((SMALL.message, SMALL.fragments), (1024, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderLimits {
    /// Bytes of a message, all its frames together, after inflation. Default 16 MiB. A compressed
    /// message may have twice as many on the wire and 1 KiB more.
    pub message: u64,
    /// Frames of a message, empty ones too: a peer must not keep a message going for ever. Default 4,096.
    pub fragments: u32,
}

impl DecoderLimits {
    /// Returns the default limits.
    pub const fn new() -> DecoderLimits {
        DecoderLimits { message: 16 << 20, fragments: 4096 }
    }

    /// Sets [`DecoderLimits::message`].
    #[must_use]
    pub const fn message(self, message: u64) -> DecoderLimits {
        DecoderLimits { message, ..self }
    }

    /// Sets [`DecoderLimits::fragments`].
    #[must_use]
    pub const fn fragments(self, fragments: u32) -> DecoderLimits {
        DecoderLimits { fragments, ..self }
    }
}

impl Default for DecoderLimits {
    fn default() -> DecoderLimits {
        DecoderLimits::new()
    }
}

/// Returns the number of bytes that a compressed message of at most `limit` bytes may have on the
/// wire.
///
/// Deflate makes data that does not compress longer by less than a sixth (zlib's `deflateBound`),
/// and ends each flush with a few bytes. Twice the size leaves room for a peer that flushes often.
/// The limit of the message itself is kept while it is inflated; this one ends a message that
/// inflates to nothing.
pub(super) fn compressed_max(limit: u64) -> u64 {
    limit.saturating_mul(2).saturating_add(1024)
}

/// A larger buffer is not kept for the next message: a burst's memory must not stay. Four times 16 KiB, the size up to
/// which messages are read without an allocation each: a vector that grows by doubling can end there.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

/// Bytes that a chunk inflates to at most, before those that end its message (a few hundred): else what a thousandth of it
/// on the wire holds would have to be in memory at once, and reading by chunks would save nothing.
pub(super) const CHUNK_MAX: usize = 64 << 10;
