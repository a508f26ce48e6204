//! Slices of bytes in an exchange's arena, the memory that is freed all at once at the end of a
//! request. The exchange stores these slices next to the arena itself.
//!
//! # Ground rules
//! - An [`ArenaSlice`] refers to memory of the arena in the same [`Exchange`](crate::Exchange), or
//!   to `'static` data. It is only read while that exchange is borrowed, and never leaves this
//!   crate.
//! - The arena moves no allocated memory before it is reset, even if the exchange itself is moved.
//! - `Exchange::reset` clears all slices before it resets the arena.

use std::ptr::NonNull;

/// A slice of bytes in the arena of an [`Exchange`](crate::Exchange), stored in a field of the same
/// exchange.
#[derive(Clone, Copy)]
pub(crate) struct ArenaSlice {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the value is an address and a length. The bytes are plain data, are written before the
// slice is created, and belong to the exchange, which has one owner at a time.
unsafe impl Send for ArenaSlice {}
// SAFETY: the reason is the same as for `Send`, and shared access only reads.
unsafe impl Sync for ArenaSlice {}

impl ArenaSlice {
    /// An empty slice of the arena.
    pub(crate) const EMPTY: ArenaSlice = ArenaSlice { start: NonNull::dangling(), len: 0 };

    /// Creates an arena slice that refers to `bytes`. They must be in the arena of the exchange
    /// that will store the slice, or be `'static`.
    pub(crate) fn of(bytes: &[u8]) -> ArenaSlice {
        ArenaSlice { start: NonNull::from(bytes).cast(), len: bytes.len() }
    }

    /// Creates an arena slice of `len` bytes at `start`. The arena of the exchange that will store
    /// the slice must have allocated these bytes.
    pub(crate) fn at(start: NonNull<u8>, len: usize) -> ArenaSlice {
        ArenaSlice { start, len }
    }

    /// Extends this slice by `next` if the bytes of `next` directly follow it in memory. Returns
    /// false, and leaves this slice unchanged, if they do not.
    ///
    /// Both slices must come from [`at`](Self::at). The pointer of a slice from [`of`](Self::of)
    /// may only be used for the bytes of that slice (pointer provenance).
    pub(crate) fn extend(&mut self, next: ArenaSlice) -> bool {
        let is_behind = self.start.addr().get() + self.len == next.start.addr().get();
        self.len += if is_behind { next.len } else { 0 };
        is_behind
    }

    /// Returns the length of the slice in bytes.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Returns the bytes of the arena to which this slice refers.
    ///
    /// # Safety
    /// - The arena that the slice refers to has not been reset or dropped since the slice was
    ///   created.
    /// - `'a` does not exceed a borrow of the exchange that owns the arena.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: `start..start + len` was valid when the slice was created. The caller guarantees
        // that the memory still belongs to the arena and is not written to while borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for ArenaSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArenaSlice({} bytes)", self.len)
    }
}
