//! The allocator of the package's Rust half, which counts the bytes that live: starting and stopping servers for
//! ever must leave them where they were, and a test says so.
//!
//! Cost: one relaxed atomic addition per allocation and one per free, and the paths that run per request and per
//! frame have none of either of ours.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

/// No allocation is larger than `isize::MAX`.
fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn add(bytes: usize) {
    LIVE.fetch_add(signed(bytes), Ordering::Relaxed);
}

fn subtract(bytes: usize) {
    LIVE.fetch_sub(signed(bytes), Ordering::Relaxed);
}

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's duties are the callee's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's duties are the callee's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        subtract(layout.size());
        add(size);
        // SAFETY: the caller's duties are the callee's.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: the caller's duties are the callee's.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes allocated and not freed.
#[unsafe(no_mangle)]
pub extern "C" fn rk_live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}
