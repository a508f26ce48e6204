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

/// Turns that the iterations are split into. Their median is the time: where other programs want the same cores, a turn
/// is either not interrupted or by a multiple of its length.
const TURNS: u64 = 32;

/// Repeats `operation`, and drops what it returns.
#[inline]
pub fn repeat<T>(iterations: u64, mut operation: impl FnMut() -> T) -> Figures {
    // The allocator's and the cell's first times are not the operation's.
    black_box(operation());
    let mut times = [0.0; TURNS as usize];
    let (allocations, bytes) = counters();
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
    let (allocations_after, bytes_after) = counters();
    times.sort_by(f64::total_cmp);
    let per_op = |total: u64| total as f64 / iterations as f64;
    Figures {
        ns_per_op: times[times.len() / 2],
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
