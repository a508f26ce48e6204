//! Global allocators that count calls and bytes, one for a program of one thread and one for more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Calls of malloc and realloc, and the bytes they asked for, so far.
#[inline]
pub fn totals() -> (u64, u64) {
    (CALLS.load(Relaxed), BYTES.load(Relaxed))
}

/// The most bytes that were held at once, by a program with [`CountingThreads`].
pub fn peak() -> u64 {
    PEAK.load(Relaxed)
}

/// The bytes that are held now, by a program with [`CountingThreads`].
pub fn live() -> u64 {
    LIVE.load(Relaxed)
}

/// For one thread, where a load and a store do: an atomic addition would add the same to every contender, and so flatter the
/// slower of two in a ratio.
pub struct Counting;

/// For all threads, and what is held as well.
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
        // SAFETY: everything is passed on to the system's allocator.
        unsafe impl GlobalAlloc for $name {
            unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
                Self::grown(layout.size());
                // SAFETY: the caller's promise.
                unsafe { System.alloc(layout) }
            }

            unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
                Self::grown(layout.size());
                // SAFETY: the caller's promise.
                unsafe { System.alloc_zeroed(layout) }
            }

            unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
                Self::freed(layout.size());
                // SAFETY: the caller's promise.
                unsafe { System.dealloc(pointer, layout) }
            }

            unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
                Self::freed(layout.size());
                Self::grown(size);
                // SAFETY: the caller's promise.
                unsafe { System.realloc(pointer, layout, size) }
            }
        }
    };
}

counting!(Counting);
counting!(CountingThreads);
