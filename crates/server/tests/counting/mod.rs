//! An allocator that counts. It becomes the allocator of the test that includes it.
#![allow(dead_code, reason = "each test asks for one of the counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

struct Counting;

static EVERYWHERE: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
}

/// How often this thread has allocated.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// How often all threads have allocated but those that are left out.
pub(crate) fn allocations_everywhere() -> u64 {
    EVERYWHERE.load(Ordering::Relaxed)
}

/// Leaves this thread out of [`allocations_everywhere`] from now on.
pub(crate) fn leave_this_thread_out() {
    IS_LEFT_OUT.set(true);
}

/// The bytes that live.
pub(crate) fn live_bytes() -> usize {
    LIVE.load(Ordering::Relaxed)
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches atomics and `Cell`s without a
// destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if !IS_LEFT_OUT.get() {
            EVERYWHERE.fetch_add(1, Ordering::Relaxed);
        }
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
