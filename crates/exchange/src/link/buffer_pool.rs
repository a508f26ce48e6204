//! The pool of message buffers that are kept for reuse.

/// The maximum number of buffers in the pool. Kept buffers are not charged to any client.
pub(super) const KEPT_BUFFERS: usize = 256;
/// The capacity in bytes of the largest buffer that is kept.
pub(super) const KEPT_BUFFER_BYTES: usize = 64 << 10;
/// The maximum sum of the capacities of all buffers in the pool, in bytes.
pub(super) const KEPT_BYTES: usize = 2 << 20;

/// Returns true if the capacity of a buffer is suitable for the pool.
pub(super) fn is_kept(buffer: &Vec<u8>) -> bool {
    (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity())
}

/// A pool of empty buffers.
#[derive(Default)]
pub(super) struct BufferPool {
    kept: Vec<Vec<u8>>,
    /// The sum of the buffers' capacities.
    bytes: usize,
}

impl BufferPool {
    pub(super) fn take(&mut self) -> Vec<u8> {
        let buffer = self.kept.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Adds a buffer to the pool unless the pool is full.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if self.kept.len() < KEPT_BUFFERS && bytes <= KEPT_BYTES {
            buffer.clear();
            self.bytes = bytes;
            self.kept.push(buffer);
        }
    }
}
