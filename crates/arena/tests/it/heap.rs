//! A global allocator that counts the requests of its thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

pub(crate) struct Counting;

thread_local! {
    static MALLOCS: Cell<u64> = const { Cell::new(0) };
    static FREES: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of calls of malloc (and realloc) and of free that `work` makes on this
/// thread.
pub(crate) fn calls(work: impl FnOnce()) -> (u64, u64) {
    let before = (MALLOCS.get(), FREES.get());
    work();
    (MALLOCS.get() - before.0, FREES.get() - before.1)
}

// SAFETY: passes each call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MALLOCS.set(MALLOCS.get() + 1);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        FREES.set(FREES.get() + 1);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        MALLOCS.set(MALLOCS.get() + 1);
        // SAFETY: the caller guarantees the conditions.
        unsafe { System.realloc(start, layout, size) }
    }
}
