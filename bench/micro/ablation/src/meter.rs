//! Time and allocations of an operation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub struct Case {
    pub scenario: &'static str,
    pub what: &'static str,
    pub run: fn(u64) -> Figures,
}

pub struct Figures {
    pub ns_per_op: f64,
    pub allocs_per_op: f64,
    pub bytes_per_op: f64,
}

/// The iterations are split into turns and the median turn is the time: on a machine with other work a turn is either
/// not interrupted at all or by a multiple of its length.
const TURNS: u64 = 32;
/// Not measured: buffers and pools reach their size.
const WARM_UP: u64 = 16;

pub fn repeat<T>(iterations: u64, mut operation: impl FnMut() -> T) -> Figures {
    for _ in 0..WARM_UP {
        black_box(operation());
    }
    let mut times = [0.0; TURNS as usize];
    let before = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let mut done = 0;
    for (turn, time) in (1..=TURNS).zip(&mut times) {
        let until = iterations * turn / TURNS;
        let in_turn = until - done;
        let start = Instant::now();
        while done < until {
            black_box(operation());
            done += 1;
        }
        *time = start.elapsed().as_secs_f64() * 1e9 / in_turn.max(1) as f64;
    }
    let after = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    times.sort_by(f64::total_cmp);
    Figures {
        ns_per_op: times[times.len() / 2],
        allocs_per_op: (after.0 - before.0) as f64 / iterations as f64,
        bytes_per_op: (after.1 - before.1) as f64 / iterations as f64,
    }
}

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

/// One thread runs: a load and a store cost less than an atomic addition, which would weigh on the side that allocates.
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
