//! Buffers that are kept for reuse.

use std::cell::RefCell;

/// The maximum number of buffers that are kept.
const MAX_BUFFERS: usize = 64;

/// The maximum capacity of a buffer that is kept.
const MAX_BUFFER_SIZE: usize = 64 << 10;

/// Empty buffers for requests, responses and messages.
#[derive(Debug, Default)]
pub(super) struct BufferPool(RefCell<Vec<Vec<u8>>>);

impl BufferPool {
    /// Returns an empty buffer, which may have capacity.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Clears a buffer and keeps it, unless it is large or enough buffers are kept.
    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.0.borrow_mut();
        if buffers.len() < MAX_BUFFERS && buffer.capacity() <= MAX_BUFFER_SIZE {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}
