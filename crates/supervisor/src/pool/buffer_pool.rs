//! The buffer pool, which keeps buffers for reuse.

use std::cell::RefCell;

/// The maximum number of buffers that the pool keeps.
const MAX_BUFFERS: usize = 64;

/// The maximum capacity in bytes of a buffer that the pool keeps.
const MAX_BUFFER_SIZE: usize = 64 << 10;

/// A pool of empty buffers for requests, responses and messages.
#[derive(Debug, Default)]
pub(super) struct BufferPool(RefCell<Vec<Vec<u8>>>);

impl BufferPool {
    /// Returns an empty buffer, which may already have capacity.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Clears a buffer and keeps it for reuse. The buffer is dropped instead if it is too large or
    /// if the pool already keeps enough buffers.
    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.0.borrow_mut();
        if buffers.len() < MAX_BUFFERS && buffer.capacity() <= MAX_BUFFER_SIZE {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}
