//! The limits of the messages that a WebSocket decoder accepts, and of the memory that it keeps.

/// The limits of the messages that a WebSocket peer may send.
///
/// ```
/// use rookery_websocket::protocol::DecoderLimits;
/// const SMALL: DecoderLimits = DecoderLimits::new().message(1 << 10);
/// assert_eq!((SMALL.message, SMALL.fragments), (1024, 4096));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecoderLimits {
    /// The maximum number of bytes of a message, in all of its frames together and after
    /// decompression. Default: 16 MiB. On the wire, a compressed message may have at most twice
    /// this number of bytes plus 1 KiB.
    pub message: u64,
    /// The maximum number of frames of a message, including empty frames. Without this limit, a
    /// peer could continue a message for ever. Default: 4,096.
    pub fragments: u32,
}

impl DecoderLimits {
    /// Returns the default limits of received messages.
    pub const fn new() -> DecoderLimits {
        DecoderLimits { message: 16 << 20, fragments: 4096 }
    }

    /// Sets [`DecoderLimits::message`], the maximum number of bytes of a message.
    #[must_use]
    pub const fn message(self, message: u64) -> DecoderLimits {
        DecoderLimits { message, ..self }
    }

    /// Sets [`DecoderLimits::fragments`], the maximum number of frames of a message.
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

/// Returns the number of bytes that a compressed message may have on the wire if its content may
/// have at most `limit` bytes.
///
/// Deflate makes incompressible data longer by less than a sixth (zlib's `deflateBound`), and each
/// flush ends with a few bytes. Twice the size is enough even for a peer that flushes often. This
/// limit stops a peer whose endless compressed message decompresses to almost nothing.
pub(super) fn compressed_max(limit: u64) -> u64 {
    limit.saturating_mul(2).saturating_add(1024)
}

/// The size in bytes of the largest buffer that is kept for the next message. Larger buffers are
/// freed, so that the memory of a burst is released.
pub(crate) const KEPT_BYTES: usize = 64 << 10;

/// The maximum number of bytes to which one chunk of a compressed message is decompressed, except
/// for a few hundred bytes at the end of the message. Without this limit, reading in chunks would
/// save no memory, because data can decompress to a thousand times its size.
pub(super) const CHUNK_MAX: usize = 64 << 10;
