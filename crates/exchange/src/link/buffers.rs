//! Empty message buffers that are kept for reuse.

/// Buffers kept, the largest that is, and what all of them may hold: nobody is charged for it.
pub(super) const KEPT_BUFFERS: usize = 256;
pub(super) const KEPT_BUFFER_BYTES: usize = 64 << 10;
pub(super) const KEPT_BYTES: usize = 2 << 20;

/// Whether a buffer is of a size that is kept.
pub(super) fn is_kept(buffer: &Vec<u8>) -> bool {
    (1..=KEPT_BUFFER_BYTES).contains(&buffer.capacity())
}

/// Empty buffers, and the bytes that they hold.
#[derive(Default)]
pub(super) struct Buffers {
    kept: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
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
