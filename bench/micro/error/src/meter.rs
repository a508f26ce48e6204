//! Time and allocations of an operation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub struct Case {
    pub scenario: &'static str,
    pub peer: &'static str,
    pub what: &'static str,
    pub run: fn(u64) -> Figures,
}

pub struct Figures {
    pub ns_per_op: f64,
    pub allocs_per_op: f64,
    pub bytes_per_op: f64,
}

/// Repeats `operation`, and drops what it returns.
#[inline]
pub fn repeat<T>(iterations: u64, mut operation: impl FnMut() -> T) -> Figures {
    // The allocator's and the cell's first times are not the operation's.
    black_box(operation());
    let (allocations, bytes) = counters();
    let start = Instant::now();
    for _ in 0..iterations {
        black_box(operation());
    }
    let elapsed = start.elapsed();
    let (allocations_after, bytes_after) = counters();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let per_op = |total: u64| total as f64 / iterations as f64;
    Figures {
        ns_per_op: per_op(u64::try_from(elapsed.as_nanos()).expect("less than centuries")),
        allocs_per_op: per_op(allocations_after - allocations),
        bytes_per_op: per_op(bytes_after - bytes),
    }
}

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

fn counters() -> (u64, u64) {
    (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed))
}

/// One thread runs, so a load and a store do: an atomic addition would add the same to every peer, and so flatter the
/// slower of two in a ratio.
fn count(size: usize) {
    ALLOCATIONS.store(ALLOCATIONS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    BYTES.store(BYTES.load(Ordering::Relaxed) + size as u64, Ordering::Relaxed);
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
