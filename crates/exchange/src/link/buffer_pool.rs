//! The pool of buffers for messages, which keeps empty buffers for reuse.

/// The maximum number of unused message buffers in the pool.
pub(super) const KEPT_BUFFERS: usize = 256;
/// The capacity in bytes of the largest message buffer that the pool keeps.
pub(super) const KEPT_BUFFER_BYTES: usize = 64 << 10;
/// The maximum total capacity of all message buffers in the pool, in bytes.
pub(super) const KEPT_BYTES: usize = 2 << 20;

/// Returns true if the pool may keep this buffer, because its capacity is neither 0 nor too large.
pub(super) fn is_kept(buffer: &Vec<u8>) -> bool {
    (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity())
}

/// A pool of empty message buffers, which are kept for reuse.
#[derive(Default)]
pub(super) struct BufferPool {
    kept: Vec<Vec<u8>>,
    /// The total capacity of the buffers in the pool, in bytes.
    bytes: usize,
}

impl BufferPool {
    pub(super) fn take(&mut self) -> Vec<u8> {
        let buffer = self.kept.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Clears a buffer and adds it to the pool. The buffer is dropped if the pool is full.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if self.kept.len() < KEPT_BUFFERS && bytes <= KEPT_BYTES {
            buffer.clear();
            self.bytes = bytes;
            self.kept.push(buffer);
        }
    }
}
