//! Buffers that all connections of a thread share.
//!
//! A connection holds a buffer only while a message in it is incomplete. An idle connection holds
//! none.

use std::cell::RefCell;

use crate::protocol::KEPT_BYTES;

/// Bytes read from a socket at a time: enough for several messages of 16 KiB, and small enough for
/// a level-two cache.
pub(crate) const READ_SIZE: usize = 64 << 10;

/// The number of buffers of each kind that a thread keeps. More are in use only while more messages
/// are incomplete.
const POOLED: usize = 16;

/// A buffer for reading. It is always initialised, so that it is cleared once and not before each
/// read.
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

/// Returns an empty vector with the capacity of its last use.
pub(crate) fn take_message_buffer() -> Vec<u8> {
    GROWING.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Puts a vector back. A vector that a large message has grown is freed instead.
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
