//! The buffer pool, which keeps empty buffers for later requests, responses and messages.

use std::cell::RefCell;

/// The maximum number of buffers that the pool keeps.
const MAX_BUFFERS: usize = 64;

/// The maximum capacity in bytes of a buffer that the pool keeps.
const MAX_BUFFER_SIZE: usize = 64 << 10;

/// A pool of empty buffers, which are reused for requests, responses and messages.
#[derive(Debug, Default)]
pub(super) struct BufferPool(RefCell<Vec<Vec<u8>>>);

impl BufferPool {
    /// Returns an empty buffer from the pool, or a new one if the pool has none.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Clears a buffer and adds it to the pool. The buffer is dropped instead if it is too large or
    /// the pool is full.
    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.0.borrow_mut();
        if buffers.len() < MAX_BUFFERS && buffer.capacity() <= MAX_BUFFER_SIZE {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}
