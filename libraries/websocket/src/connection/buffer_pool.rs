//! A pool of buffers that all WebSocket connections of a thread share.
//!
//! A connection holds a buffer only while a message in the buffer is incomplete. An idle connection
//! holds none.

use std::cell::RefCell;

use crate::protocol::KEPT_BYTES;

/// The maximum number of bytes that are read from a socket at once. They are enough for several
/// messages of 16 KiB, and fit into a level-two cache.
pub(crate) const READ_SIZE: usize = 64 << 10;

/// The maximum number of free buffers of each kind that a thread keeps for reuse.
const POOLED: usize = 16;

/// A buffer for reading from a socket. It is filled with zeros only when it is created, not before
/// each read.
pub(crate) type ReadBuffer = Box<[u8]>;

thread_local! {
    static READ: RefCell<Vec<ReadBuffer>> = const { RefCell::new(Vec::new()) };
    static GROWING: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn take_read_buffer() -> ReadBuffer {
    READ.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; READ_SIZE].into_boxed_slice())
}

pub(crate) fn return_read_buffer(buffer: ReadBuffer) {
    READ.with_borrow_mut(|pool| {
        if pool.len() < POOLED {
            pool.push(buffer);
        }
    });
}

/// Takes an empty message buffer from the thread's pool. The buffer keeps the capacity that it had
/// when it was returned to the pool.
pub(crate) fn take_message_buffer() -> Vec<u8> {
    GROWING.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Returns a message buffer to the pool, or frees it if a large message has made it too large.
pub(crate) fn return_message_buffer(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > KEPT_BYTES {
        return;
    }
    buffer.clear();
    GROWING.with_borrow_mut(|pool| {
        if pool.len() < POOLED {
            pool.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_16_buffers_of_each_kind_and_no_large_one() {
        for buffer in (0..20).map(|_| take_read_buffer()).collect::<Vec<_>>() {
            return_read_buffer(buffer);
        }
        assert_eq!(READ.with_borrow(Vec::len), 16);
        for _ in 0..20 {
            return_message_buffer(vec![1; KEPT_BYTES]);
        }
        assert_eq!(GROWING.with_borrow(Vec::len), 16);
        let lent = take_message_buffer();
        assert!(lent.is_empty() && lent.capacity() == 64 << 10);
        return_message_buffer(vec![1; KEPT_BYTES + 1]);
        assert_eq!(GROWING.with_borrow(Vec::len), 15);
    }
}
