//! Empty message buffers that are kept for reuse.

/// How many buffers are kept, the size of the largest, and the bytes that all of them may hold.
/// They are not charged to any client.
pub(super) const KEPT_BUFFERS: usize = 256;
pub(super) const KEPT_BUFFER_BYTES: usize = 64 << 10;
pub(super) const KEPT_BYTES: usize = 2 << 20;

/// Returns whether a buffer has a size that is kept for reuse.
pub(super) fn is_kept(buffer: &Vec<u8>) -> bool {
    (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity())
}

/// The empty buffers that are kept, and the sum of their capacities.
#[derive(Default)]
pub(super) struct BufferPool {
    kept: Vec<Vec<u8>>,
    bytes: usize,
}

impl BufferPool {
    pub(super) fn take(&mut self) -> Vec<u8> {
        let buffer = self.kept.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps a buffer, if there is room for it.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if self.kept.len() < KEPT_BUFFERS && bytes <= KEPT_BYTES {
            buffer.clear();
            self.bytes = bytes;
            self.kept.push(buffer);
        }
    }
}
