//! The pool of empty buffers for messages and chunks of streams.

/// The maximum number of unused message buffers in the pool.
pub(super) const KEPT_BUFFERS: usize = 256;
/// The capacity in bytes of the largest message buffer that the pool keeps.
pub(super) const KEPT_BUFFER_BYTES: usize = 64 << 10;
/// The maximum total capacity of all message buffers in the pool, in bytes.
pub(super) const KEPT_BYTES: usize = 2 << 20;

/// A pool of empty buffers for messages and chunks of streams, which are kept for reuse.
#[derive(Debug, Default)]
pub struct BufferPool {
    kept: Vec<Vec<u8>>,
    /// The total capacity of the buffers in the pool, in bytes.
    bytes: usize,
}

impl BufferPool {
    /// Returns an empty buffer: one of the pool, or a new one if the pool is empty.
    pub fn take(&mut self) -> Vec<u8> {
        let buffer = self.kept.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Clears a buffer and adds it to the pool. The buffer is dropped instead if it has no memory
    /// or too much, or if the pool is full.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        let is_kept = (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity());
        if is_kept && self.kept.len() < KEPT_BUFFERS && bytes <= KEPT_BYTES {
            buffer.clear();
            self.bytes = bytes;
            self.kept.push(buffer);
        }
    }
}
