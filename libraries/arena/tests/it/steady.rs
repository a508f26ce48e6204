//! Periods that are alike: after a few of them, an arena calls neither malloc nor free.

use std::alloc::Layout;
use std::io::Write;

use rookery_arena::collections::{Buffer, Vec};
use rookery_arena::{Arena, Growth, SyncArena};

use crate::heap;
use crate::random::Random;

const WARM_UP: usize = if cfg!(miri) { 40 } else { 100 };
const MEASURED: usize = if cfg!(miri) { 3 } else { 20 };
const PROGRAMS: u64 = if cfg!(miri) { 2 } else { 150 };

/// Returns the calls of malloc, realloc and free in periods of `work`, after periods that warm the
/// arena up.
fn calls_once_warm(arena: &mut Arena, mut work: impl FnMut(&Arena)) -> (u64, u64) {
    let mut period = |arena: &mut Arena| {
        work(arena);
        arena.reset();
    };
    (0..WARM_UP).for_each(|_| period(arena));
    heap::calls(|| (0..MEASURED).for_each(|_| period(arena)))
}

#[test]
fn a_growing_text_calls_no_malloc_once_warm() {
    const SIZES: [(usize, usize); 4] =
        [(3_000, 70), (40_000, 50), (200_000, 100), (1_000_000, 5000)];
    for (total, step) in SIZES.into_iter().take(if cfg!(miri) { 1 } else { 4 }) {
        for others in [false, true] {
            for capacity in [0, 100, 20_000] {
                let piece = "x".repeat(step);
                let mut arena = Arena::new();
                let calls = calls_once_warm(&mut arena, |arena| {
                    let mut text = Vec::with_capacity_in(capacity, arena);
                    while text.len() < total {
                        text.extend_from_slice(piece.as_bytes());
                        if others {
                            arena.alloc(1u64);
                        }
                    }
                    assert_eq!(text.into_slice().len(), total.next_multiple_of(step));
                });
                assert_eq!(calls, (0, 0), "{total} bytes from {capacity}, others: {others}");
            }
        }
    }
}

#[test]
fn a_growing_array_calls_no_malloc_once_warm() {
    const COUNT: u32 = if cfg!(miri) { 300 } else { 100_000 };
    for count in [COUNT / 100, COUNT / 10, COUNT] {
        let mut arena = Arena::new();
        let calls = calls_once_warm(&mut arena, |arena| {
            let mut array = Vec::new_in(arena);
            array.extend(0..count);
            let mut pushed = Vec::new_in(arena);
            (0..count).for_each(|n| pushed.push(n));
            assert_eq!(array.into_slice(), pushed.into_slice());
        });
        assert_eq!(calls, (0, 0), "{count} values");
    }
}

#[test]
fn arrays_that_grow_in_turns_call_no_malloc_once_warm() {
    const COUNT: u64 = if cfg!(miri) { 100 } else { 20_000 };
    let mut arena = Arena::new();
    let calls = calls_once_warm(&mut arena, |arena| {
        let mut arrays = [Vec::new_in(arena), Vec::new_in(arena), Vec::new_in(arena)];
        for n in 0..COUNT {
            arrays[(n % 7 % 3) as usize].push(n);
        }
        let mut buffer = Buffer::new_in(arena);
        for array in arrays {
            array.iter().for_each(|n| buffer.write_all(&n.to_le_bytes()).unwrap());
            buffer.skip(1000);
        }
    });
    assert_eq!(calls, (0, 0));
}

/// Runs a period drawn from `seed`: allocations of up to 256 KiB and every alignment up to 64, and
/// collections that grow with others in between.
fn random_period(arena: &Arena, seed: u64, collections: bool) {
    let mut random = Random(seed);
    let (count, bits) = (random.between(1, 200), random.between(3, 18));
    for _ in 0..count {
        let largest = (1 << random.between(0, bits)) - 1;
        let size = random.between(0, largest);
        let align = 1 << random.between(0, 6);
        arena.alloc_layout(Layout::from_size_align(size, align).unwrap());
        if collections && random.between(0, 7) == 0 {
            let mut array =
                Vec::with_capacity_in(random.between(0, 1) * random.between(0, 3000), arena);
            for n in 0..random.between(0, if cfg!(miri) { 100 } else { 3000 }) {
                array.push(n as u64);
                if n % 512 == 0 {
                    arena.alloc([0u64; 3]);
                }
            }
            let _ = array.into_slice();
        }
    }
}

fn growth(seed: u64) -> Growth {
    match seed % 3 {
        0 => Growth::default(),
        1 => Growth::new(128, 4096),
        _ => Growth::fixed(32 * 1024),
    }
}

#[test]
fn random_periods_call_no_malloc_once_warm() {
    for (collections, programs) in [(false, PROGRAMS), (true, PROGRAMS.div_ceil(5))] {
        for seed in 0..programs {
            let mut arena = Arena::with_growth(growth(seed));
            let calls =
                calls_once_warm(&mut arena, |arena| random_period(arena, seed, collections));
            assert_eq!(calls, (0, 0), "seed {seed}, collections: {collections}");
        }
    }
}

#[test]
fn random_periods_of_a_sync_arena_call_no_malloc_once_warm() {
    for seed in 0..PROGRAMS {
        let mut arena = SyncArena::with_growth(growth(seed));
        let period = |arena: &mut SyncArena| {
            let mut random = Random(seed);
            let (count, bits) = (random.between(1, 200), random.between(3, 18));
            for _ in 0..count {
                let largest = (1 << random.between(0, bits)) - 1;
                let size = random.between(0, largest);
                let align = 1 << random.between(0, 6);
                arena.alloc_layout(Layout::from_size_align(size, align).unwrap());
            }
            arena.reset();
        };
        (0..WARM_UP).for_each(|_| period(&mut arena));
        assert_eq!(
            heap::calls(|| (0..MEASURED).for_each(|_| period(&mut arena))),
            (0, 0),
            "seed {seed}"
        );
    }
}

/// Sixteen requests of nearly an eighth of a chunk get dedicated chunks before the cursor moves on.
/// They must not replace the chunk that it moves on to, which has the maximum size.
#[test]
fn a_chunk_of_the_largest_size_is_not_replaced() {
    let mut arena = Arena::with_growth(Growth::fixed(32 * 1024));
    let calls = calls_once_warm(&mut arena, |arena| {
        arena.alloc_uninit::<[u8; 29_000]>();
        (0..20).for_each(|_| _ = arena.alloc_uninit::<[u8; 4_000]>());
        assert_eq!(arena.dedicated_chunks(), 16);
    });
    assert_eq!(calls, (0, 0));
}

/// A period keeps for the next what it has needed, and not what a larger one before it has needed.
#[test]
fn a_chunk_that_grew_once_is_forgotten() {
    let mut arena = Arena::new();
    let period = |arena: &mut Arena, total: usize| {
        let mut text = Vec::with_capacity_in(20_000, arena);
        while text.len() < total {
            text.extend_from_slice(&vec![b'x'; 1000]);
        }
        let _ = text.into_slice();
        arena.reset();
    };
    period(&mut arena, if cfg!(miri) { 300_000 } else { 3_000_000 });
    let grown = arena.capacity();
    (0..80).for_each(|_| period(&mut arena, 40_000));
    assert!(arena.capacity() < 60_000, "{} bytes of {grown}", arena.capacity());
    let calls = heap::calls(|| (0..10).for_each(|_| period(&mut arena, 40_000)));
    // The parts, and nothing of the arena.
    assert_eq!(calls, (400, 400));
}
