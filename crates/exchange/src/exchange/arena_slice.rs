//! A piece of an exchange's arena, held beside the arena that owns it.
//!
//! # Ground rules
//! A [`ArenaSlice`] is made from memory of the arena in the same [`Exchange`](crate::Exchange) (or from `'static` data)
//! and read only through a borrow of that exchange. The arena never moves what it has handed out, also when the
//! exchange itself moves, until `reset`; `Exchange::reset` forgets every span first. Spans never leave this crate.

use std::ptr::NonNull;

/// A run of bytes in the arena of the exchange that holds it.
#[derive(Clone, Copy)]
pub(crate) struct ArenaSlice {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a span is an address and a length; the bytes are plain data, written before the span is made and owned
// by the exchange that holds it, which has one owner at a time.
unsafe impl Send for ArenaSlice {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for ArenaSlice {}

impl ArenaSlice {
    /// No bytes.
    pub(crate) const EMPTY: ArenaSlice = ArenaSlice { start: NonNull::dangling(), len: 0 };

    /// Remembers `bytes`, which lie in the holder's arena or are `'static`.
    pub(crate) fn of(bytes: &[u8]) -> ArenaSlice {
        ArenaSlice { start: NonNull::from(bytes).cast(), len: bytes.len() }
    }

    /// Remembers `len` bytes at `start`, which the holder's arena gave for them.
    pub(crate) fn at(start: NonNull<u8>, len: usize) -> ArenaSlice {
        ArenaSlice { start, len }
    }

    /// Takes `next` in if it lies right behind: `false` if it does not.
    ///
    /// Both came from [`at`](Self::at), whose pointers may reach all of a chunk; two chunks never touch, because each
    /// begins with a header.
    pub(crate) fn extend(&mut self, next: ArenaSlice) -> bool {
        let is_behind = self.start.addr().get() + self.len == next.start.addr().get();
        self.len += if is_behind { next.len } else { 0 };
        is_behind
    }

    /// Bytes in the span.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The bytes.
    ///
    /// # Safety
    /// - The arena the span was made from has not been reset or dropped since.
    /// - `'a` is bounded by a borrow of the exchange that owns that arena.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: `start..start + len` was a valid slice in `of`, and the caller vouches that the memory is still
        // the arena's and is not written to while borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for ArenaSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArenaSlice({} bytes)", self.len)
    }
}
