//! Global allocators that count calls and bytes, one for programs with one thread and one for
//! programs with several.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Returns the calls of malloc and realloc so far, and the bytes that they requested.
#[inline]
pub fn totals() -> (u64, u64) {
    (CALLS.load(Relaxed), BYTES.load(Relaxed))
}

/// Returns the maximum number of bytes held at once, in a program with [`CountingThreads`].
pub fn peak() -> u64 {
    PEAK.load(Relaxed)
}

/// Returns the number of bytes held now, in a program with [`CountingThreads`].
pub fn live() -> u64 {
    LIVE.load(Relaxed)
}

/// An allocator for one thread, with a load and a store. An atomic addition would add the same cost
/// to all contenders, and so improve the ratio of the slower one.
pub struct Counting;

/// An allocator for several threads, which also counts the bytes held.
pub struct CountingThreads;

trait Count {
    fn grown(size: usize);
    fn freed(size: usize);
}

impl Count for Counting {
    fn grown(size: usize) {
        CALLS.store(CALLS.load(Relaxed) + 1, Relaxed);
        BYTES.store(BYTES.load(Relaxed) + size as u64, Relaxed);
    }

    fn freed(_: usize) {}
}

impl Count for CountingThreads {
    fn grown(size: usize) {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(size as u64, Relaxed);
        let live = LIVE.fetch_add(size as u64, Relaxed) + size as u64;
        PEAK.fetch_max(live, Relaxed);
    }

    fn freed(size: usize) {
        LIVE.fetch_sub(size as u64, Relaxed);
    }
}

macro_rules! counting {
    ($name:ty) => {
        // SAFETY: passes each call to the system's allocator.
        unsafe impl GlobalAlloc for $name {
            unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
                Self::grown(layout.size());
                // SAFETY: the caller's promise is passed on.
                unsafe { System.alloc(layout) }
            }

            unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
                Self::grown(layout.size());
                // SAFETY: the caller's promise is passed on.
                unsafe { System.alloc_zeroed(layout) }
            }

            unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
                Self::freed(layout.size());
                // SAFETY: the caller's promise is passed on.
                unsafe { System.dealloc(pointer, layout) }
            }

            unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
                Self::freed(layout.size());
                Self::grown(size);
                // SAFETY: the caller's promise is passed on.
                unsafe { System.realloc(pointer, layout, size) }
            }
        }
    };
}

counting!(Counting);
counting!(CountingThreads);
