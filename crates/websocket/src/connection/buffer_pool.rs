//! Buffers that a thread lends to its connections.
//!
//! A connection owns a buffer only while something in it is half read or half written. An idle
//! connection has no buffer.

use std::cell::RefCell;

use crate::protocol::KEPT_BYTES;

/// Bytes read from a socket at a time: room for several messages of 16 KiB, small enough to stay in a level-two cache.
pub(crate) const READ_SIZE: usize = 64 << 10;

/// Buffers of either kind kept by a thread. More are in use only while as many messages are held up half way.
const POOLED: usize = 16;

/// What bytes are read into. Always initialised, so that it is cleared once and not before each read.
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

/// An empty vector, with what capacity its last user left it.
pub(crate) fn take_message_buffer() -> Vec<u8> {
    GROWING.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// A vector that a message of a burst has grown is not kept.
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
