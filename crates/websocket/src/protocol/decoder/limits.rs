//! The limits of what a decoder accepts, and of the memory that it keeps.

/// The limits of what a peer may send.
///
/// ```
/// use rookery_websocket::protocol::DecoderLimits;
/// const SMALL: DecoderLimits = DecoderLimits::new().message(1 << 10);
/// assert_eq!((SMALL.message, SMALL.fragments), (1024, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderLimits {
    /// The maximum number of bytes of a message after decompression, in all of its frames. Default:
    /// 16 MiB. On the wire, a compressed message may have twice as many bytes and 1 KiB more.
    pub message: u64,
    /// The maximum number of frames of a message, including empty ones, so that a peer cannot
    /// continue a message for ever. Default: 4,096.
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
/// Deflate makes incompressible data longer by less than a sixth (zlib's `deflateBound`), and each
/// flush ends with a few bytes. Twice the size leaves room for a peer that flushes often. The limit
/// of the message itself is checked during decompression; this limit ends a message that
/// decompresses to nothing.
pub(super) fn compressed_max(limit: u64) -> u64 {
    limit.saturating_mul(2).saturating_add(1024)
}

/// The size of the largest buffer that is kept for the next message, so that the memory of a burst
/// is released. It is four times 16 KiB, the size up to which messages are read without an
/// allocation each, because a vector that doubles can end there.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

/// The number of bytes that a chunk decompresses to, without the few hundred bytes that may end its
/// message. Without this limit, all that a thousandth as many bytes on the wire decompress to would
/// be in memory at once, and reading in chunks would save nothing.
pub(super) const CHUNK_MAX: usize = 64 << 10;
