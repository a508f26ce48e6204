//! Claims of the documentation that no other file checks.

use std::alloc::Layout;
use std::cell::Cell;

use rookery_arena::collections::{Buffer, String, Vec};
use rookery_arena::{Arena, Growth, Pool, PoolLimits, SyncArena};

use crate::heap;

#[test]
fn nothing_is_allocated_before_the_first_allocation() {
    let calls = heap::calls(|| {
        let arena = Arena::new();
        let _ = (
            Arena::with_chunk_size(4096),
            Arena::with_growth(Growth::fixed(1024)),
            SyncArena::new(),
        );
        let _ = (Vec::<u8>::new_in(&arena), String::new_in(&arena), Buffer::new_in(&arena));
        let _ = (Pool::<u8>::new(), Pool::<u8>::with_limits(PoolLimits::default()));
        assert_eq!(
            (arena.len(), arena.capacity(), arena.peak(), arena.high_water(), arena.chunks()),
            (0, 0, 0, 0, 0)
        );
    });
    assert_eq!(calls, (0, 0));
}

#[test]
fn chunks_double_from_512_bytes_to_128_kib_less_what_malloc_adds() {
    let arena = Arena::new();
    assert_eq!((arena.growth().first(), arena.growth().max()), (512, 128 * 1024));
    let mut nominal = 512;
    for chunks in 1..if cfg!(miri) { 5 } else { 12 } {
        let before = arena.capacity();
        while arena.chunks() < chunks {
            arena.alloc_uninit::<[u8; 16]>();
        }
        assert_eq!(arena.capacity() - before, nominal - 32, "chunk {chunks}");
        nominal = (nominal * 2).min(128 * 1024);
    }
}

#[test]
fn a_chunk_size_counts_32_bytes_of_header_and_32_of_malloc() {
    let arena = Arena::with_chunk_size(4096);
    arena.alloc_uninit::<[u8; 4096 - 64]>();
    assert_eq!((arena.chunks(), arena.dedicated_chunks(), arena.capacity()), (1, 0, 4096 - 32));
    arena.alloc(1u8);
    assert_eq!(arena.chunks(), 2);
    let large = Arena::with_chunk_size(1 << 20);
    assert_eq!((large.growth().first(), large.growth().max()), (1 << 20, 1 << 20));
}

#[test]
fn an_arena_runs_no_destructor() {
    struct Counted<'c>(&'c Cell<u32>);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let drops = Cell::new(0);
    let mut arena = Arena::new();
    arena.alloc(Counted(&drops));
    (0..3).for_each(|_| _ = arena.alloc(Counted(&drops)));
    arena.reset();
    arena.alloc_with(|| Counted(&drops));
    drop(arena);
    let arena = SyncArena::new();
    let _ = arena.alloc_with(|| 1);
    drop(arena);
    assert_eq!(drops.get(), 0);
}

/// An allocation stays until the reset, whatever is allocated after it.
#[test]
fn an_allocation_gives_nothing_back() {
    let arena = Arena::new();
    let first = arena.alloc_slice_fill(100, 1u8);
    let (_, frees) = heap::calls(|| {
        for size in [10, 1000, 200_000, 30, 100_000] {
            arena.alloc_layout(Layout::from_size_align(size, 8).unwrap());
        }
    });
    assert!(frees == 0 && first.iter().all(|byte| *byte == 1));
}

#[test]
fn a_burst_ten_times_the_usual_is_forgotten_after_18_resets() {
    for size in [100, 100_000] {
        let period = |arena: &mut Arena, count: usize| {
            (0..count)
                .for_each(|_| _ = arena.alloc_layout(Layout::from_size_align(size, 1).unwrap()));
            arena.reset();
        };
        let mut arena = Arena::with_growth(Growth::fixed(1024));
        (0..3).for_each(|_| period(&mut arena, 100));
        let usual = arena.high_water();
        period(&mut arena, 1000);
        assert!(arena.high_water() > 9 * usual);
        (0..18).for_each(|_| period(&mut arena, 100));
        assert!(arena.high_water() <= usual + usual / 100, "{} after {usual}", arena.high_water());
        assert!(arena.capacity() <= usual + usual / 8 + 1024, "{} after {usual}", arena.capacity());
    }
}

/// Padding is the cost of an alignment and is not bounded by an eighth: it is a half if `u8` and
/// `u128` alternate. The other unused memory is bounded.
#[test]
fn all_but_padding_is_bounded_by_an_eighth_and_a_chunk() {
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    for (one, two) in [
        ((1, 1), (16, 16)),
        ((1, 1), (8, 8)),
        ((3, 1), (64, 64)),
        ((24, 8), (7, 4)),
        ((1, 1), (512, 512)),
    ] {
        let arena = Arena::new();
        let (mut requested, mut padding) = (0, 0);
        for (size, align) in [one, two].repeat(rounds) {
            arena.alloc_layout(Layout::from_size_align(size, align).unwrap());
            requested += size;
            padding += align - 1;
            let unused = arena.capacity() - requested;
            let bound = arena.capacity() / 8 + arena.growth().max() + padding;
            assert!(unused <= bound, "{unused} of {} for {one:?} and {two:?}", arena.capacity());
        }
        assert!(
            arena.len() <= requested + padding
                && arena.capacity() - arena.len() <= arena.capacity() / 8 + arena.growth().max()
        );
    }
    // Each kind in a slice of its own needs no padding.
    let arena = Arena::new();
    arena.alloc_slice_fill(1_000, 0u8);
    arena.alloc_slice_fill(1_000, 0u128);
    assert!(arena.len() <= 17 * 1_000 + 15);
}

#[test]
fn an_array_doubles_from_32_bytes() {
    let arena = Arena::new();
    let mut array = Vec::new_in(&arena);
    let mut capacities = std::vec::Vec::new();
    for n in 0..200u64 {
        array.push(n);
        capacities.push(array.capacity());
    }
    capacities.dedup();
    assert_eq!(capacities, [4, 8, 16, 32, 64, 128, 256]);
}

#[test]
fn the_default_limits_of_a_pool() {
    let limits = PoolLimits::default();
    assert_eq!((limits.max_bytes, limits.max_arenas, limits.max_keys), (8 << 20, 64, 64));
    let pool = Pool::new();
    let taken: std::vec::Vec<_> = (0..70).map(|_| pool.take("key")).collect();
    for arena in &taken {
        arena.alloc(1u8);
    }
    drop(taken);
    assert_eq!(pool.arenas(), 64);
    let pool = Pool::new();
    (0..70).for_each(|key| drop(pool.take(key)));
    assert_eq!(pool.keys(), 64);
}

#[test]
fn a_first_chunk_of_a_pool_is_at_most_1_mib() {
    let pool = Pool::with_limits(PoolLimits::default().with_max_bytes(1 << 30));
    for _ in 0..2 {
        let arena = pool.take("big");
        (0..48).for_each(|_| _ = arena.alloc_uninit::<[u8; 65_536]>());
    }
    let waiting = pool.take("big");
    assert_eq!(pool.take("big").growth().first(), 1 << 20);
    drop(waiting);
}
