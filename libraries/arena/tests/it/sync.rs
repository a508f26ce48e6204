//! The arena of several threads. (Loom runs all orders of a few steps in `src/sync/model.rs`.)

use std::alloc::Layout;

use rookery_arena::{Growth, SyncArena};

use crate::heap;
use crate::random::Random;

const THREADS: usize = if cfg!(miri) { 2 } else { 4 };
const STEPS: usize = if cfg!(miri) { 60 } else { 4_000 };

struct Taken {
    start: usize,
    size: usize,
}

/// Allocates at random, writes a mark everywhere, and reads it back at the end. A mark of another
/// thread shows an overlap.
fn take(arena: &SyncArena, seed: u64) -> Vec<Taken> {
    let mut random = Random(seed);
    let taken: Vec<_> = (0..STEPS)
        .map(|_| {
            let size = if random.between(0, 40) == 0 {
                random.between(100, 9000)
            } else {
                random.between(0, 90)
            };
            let layout = Layout::from_size_align(size, 1 << random.between(0, 6)).unwrap();
            let start = arena.alloc_layout(layout);
            assert_eq!(start.addr().get() % layout.align(), 0);
            // SAFETY: just allocated with this size.
            unsafe { start.write_bytes(seed as u8, size) };
            (start, size)
        })
        .collect();
    for (start, size) in &taken {
        // SAFETY: allocated and written with this size, and only this thread has the pointer.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), *size) };
        assert!(bytes == vec![seed as u8; *size], "{size} bytes of another thread");
    }
    taken.into_iter().map(|(start, size)| Taken { start: start.addr().get(), size }).collect()
}

fn period(arena: &SyncArena, seed: u64) {
    let mut taken: Vec<Taken> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS as u64).map(|n| scope.spawn(move || take(arena, seed + n))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .filter(|taken| taken.size > 0)
            .collect()
    });
    taken.sort_unstable_by_key(|taken| taken.start);
    assert!(
        taken.windows(2).all(|pair| pair[0].start + pair[0].size <= pair[1].start),
        "two allocations overlap"
    );
    let requested: usize = taken.iter().map(|taken| taken.size).sum();
    assert!(arena.len() >= requested && arena.capacity() >= arena.len());
}

#[test]
fn threads_never_share_a_byte() {
    for growth in [Growth::default(), Growth::new(128, 1024), Growth::fixed(32 * 1024)] {
        let mut arena = SyncArena::with_growth(growth);
        for seed in [10, 20, 10] {
            period(&arena, seed);
            arena.reset();
            assert!(arena.is_empty());
        }
        arena.release();
        assert_eq!((arena.capacity(), arena.chunks(), arena.peak()), (0, 0, 0));
        period(&arena, 30);
    }
}

#[test]
fn a_period_at_steady_state_calls_neither_malloc_nor_free() {
    let mut arena = SyncArena::new();
    let period = |arena: &mut SyncArena| {
        for n in 0..300 {
            bytes(arena, n);
        }
        bytes(arena, 100_000);
        bytes(arena, 70_000);
        arena.reset();
    };
    (0..3).for_each(|_| period(&mut arena));
    assert_eq!(heap::calls(|| (0..20).for_each(|_| period(&mut arena))), (0, 0));
}

#[test]
fn a_burst_is_forgotten() {
    let mut arena = SyncArena::new();
    (0..1000).for_each(|_| bytes(&arena, 500));
    bytes(&arena, 1_000_000);
    arena.reset();
    assert!(arena.capacity() > 1_500_000);
    for _ in 0..80 {
        bytes(&arena, 300);
        arena.reset();
    }
    assert!(arena.capacity() < 1024, "{} bytes", arena.capacity());
    assert_eq!(arena.peak(), 1_500_000);
}

#[test]
fn an_oversized_request_does_not_move_the_cursor() {
    let arena = SyncArena::new();
    let before = std::ptr::from_ref(arena.alloc(1u8)).addr();
    bytes(&arena, 100_000);
    assert_eq!(std::ptr::from_ref(arena.alloc(2u8)).addr(), before + 1);
    assert_eq!(arena.chunks(), 2);
}

#[test]
fn middling_sizes_after_small_ones_get_few_dedicated_chunks() {
    const COUNT: usize = if cfg!(miri) { 500 } else { 20_000 };
    let mut arena = SyncArena::new();
    for period in 0..3 {
        for n in 0..COUNT {
            bytes(&arena, if period == 0 { 8 } else { 300 + n % 7 });
        }
        let chunks = arena.capacity() / arena.growth().max();
        assert!(arena.chunks() < chunks * 4 + 120, "{} in period {period}", arena.chunks());
        arena.reset();
    }
}

#[test]
fn a_limit_refuses_and_names_itself() {
    let mut arena = SyncArena::new();
    arena.set_allocation_limit(Some(10_000));
    let error = arena.try_alloc_slice_fill(20_000, 0u8).unwrap_err();
    assert_eq!((error.requested(), error.limit()), (20_000, Some(10_000)));
    while arena.try_alloc_slice_fill(100, 0u8).is_ok() {
        assert!(arena.capacity() <= 10_000);
    }
    assert!(arena.len() > 8_000);
}

#[test]
fn kept_memory_is_freed_at_the_reset_after_a_refusal() {
    let mut arena = SyncArena::new();
    arena.set_allocation_limit(Some(1_000_000));
    bytes(&arena, 900_000);
    arena.reset();
    assert!(arena.capacity() > 900_000);
    assert!(
        arena.try_alloc_uninit::<[u8; 500_000]>().is_err(),
        "the kept chunk is too large for it"
    );
    arena.reset();
    assert_eq!(arena.capacity(), 0);
    assert!(arena.try_alloc_uninit::<[u8; 500_000]>().is_ok());
}

/// Allocates without writing, because only memory is counted here, and Miri counts every byte
/// written.
fn bytes(arena: &SyncArena, size: usize) {
    arena.alloc_layout(Layout::from_size_align(size, 1).unwrap());
}
