//! The cursor moves only forward between resets, stays where it is for large requests, and returns
//! to the first chunk at a reset.

use std::alloc::Layout;

use rookery_arena::{Arena, Growth};

use crate::heap;

/// Chunks of 1,024 nominal bytes: 960 for allocations, of which an eighth is 120.
fn fixed() -> Arena {
    Arena::with_growth(Growth::fixed(1024))
}

/// Fills whole chunks with allocations of 64 bytes, 15 of which fill one.
fn fill(arena: &Arena, chunks: usize) -> Vec<*const u8> {
    (0..chunks * 15).map(|n| std::ptr::from_ref(arena.alloc([n as u64; 8])).cast()).collect()
}

#[test]
fn advances_on_growth_and_stays_there() {
    let arena = fixed();
    let filled = fill(&arena, 3);
    assert_eq!(arena.chunks(), 3);
    // The next allocations go into a fourth chunk, one after the other, although each of the first
    // three had space when it was left.
    let (a, b) = (address(arena.alloc(1u8)), address(arena.alloc(2u8)));
    assert_eq!((b.addr() - a.addr(), arena.chunks()), (1, 4));
    assert!(filled.iter().all(|start| start.addr().abs_diff(a.addr()) >= 64));
}

#[test]
fn advances_on_a_hit_in_a_later_chunk() {
    let mut arena = fixed();
    fill(&arena, 3);
    arena.reset();
    let calls = heap::calls(|| hit_in_a_later_chunk(&arena));
    assert_eq!((calls, arena.chunks(), arena.dedicated_chunks()), ((0, 0), 3, 0));
}

fn hit_in_a_later_chunk(arena: &Arena) {
    // The chunks exist already. Entering the second moves the cursor beyond the rest of the first.
    let first = arena.alloc_slice_fill(900, 1u8).as_ptr();
    let second = arena.alloc_slice_fill(100, 2u8).as_ptr();
    let third = arena.alloc_slice_fill(8, 3u8).as_ptr();
    assert_eq!(
        third.addr(),
        second.addr() + 100,
        "52 bytes were left in the first chunk; they stay abandoned"
    );
    assert_ne!(third.addr(), first.addr() + 900);
}

#[test]
fn an_oversized_request_does_not_move_it() {
    let arena = fixed();
    let before = address(arena.alloc(1u8));
    let large = arena.alloc_slice_fill(100_000, 7u8);
    let after = address(arena.alloc(2u8));
    assert_eq!(after.addr(), before.addr() + 1);
    assert!(large.iter().all(|byte| *byte == 7));
    assert_eq!((arena.chunks(), arena.dedicated_chunks()), (2, 1));
    // Nor does a request of more than an eighth of a chunk that does not fit behind the others.
    arena.alloc_slice_fill(900, 3u8);
    arena.alloc_slice_fill(121, 4u8);
    assert_eq!((address(arena.alloc(5u8))).addr(), before.addr() + 902);
    assert_eq!(arena.dedicated_chunks(), 2);
}

#[test]
fn a_large_request_that_fits_is_not_oversized() {
    let arena = fixed();
    arena.alloc_slice_fill(900, 1u8);
    assert_eq!((arena.chunks(), arena.dedicated_chunks()), (1, 0));
}

#[test]
fn reset_rewinds_it_and_fills_the_first_chunk_again() {
    let mut arena = fixed();
    let first = fill(&arena, 4);
    arena.reset();
    assert_eq!((arena.len(), arena.chunks()), (0, 4));
    let calls =
        heap::calls(|| assert_eq!(fill(&arena, 4), first, "the same addresses in the same order"));
    // The vector of addresses is the one allocation.
    assert_eq!(calls, (1, 1));
}

#[test]
fn release_rewinds_it_and_gives_everything_back() {
    let mut arena = fixed();
    fill(&arena, 4);
    arena.alloc_slice_fill(5000, 0u8);
    let (_, frees) = heap::calls(|| arena.release());
    assert_eq!(
        (frees, arena.len(), arena.capacity(), arena.chunks(), arena.peak()),
        (5, 0, 0, 0, 0)
    );
    let addresses = fill(&arena, 1);
    assert!(addresses.windows(2).all(|pair| pair[1].addr() == pair[0].addr() + 64));
    assert_eq!(arena.chunks(), 1);
}

#[test]
fn order_and_contents_survive_growth_reset_and_large_requests() {
    let mut arena = fixed();
    for round in 0..3u64 {
        let mut handed = Vec::new();
        for n in 0..500u64 {
            handed.push(&*arena.alloc_slice_fill(1 + (n % 9) as usize, round << 32 | n));
            if n % 50 == 0 {
                handed.push(arena.alloc_slice_fill(300, round << 32 | n));
            }
        }
        let mut expected = 0..500u64;
        let mut last = None;
        for slice in handed {
            let value = if slice.len() == 300 { last } else { expected.next() };
            assert!(slice.iter().all(|word| Some(*word) == value.map(|n| round << 32 | n)));
            last = value;
        }
        arena.reset();
    }
}

#[test]
fn zero_sized_types_never_touch_it() {
    let arena = Arena::new();
    let unit = arena.alloc(());
    assert_eq!(*unit, ());
    assert_eq!(arena.alloc([0u64; 0]).as_ptr().addr() % 8, 0);
    assert_eq!(arena.alloc_slice_fill(usize::MAX, ()).len(), usize::MAX);
    assert_eq!(arena.alloc_slice_copy(&[0u128; 0]).len(), 0);
    assert_eq!(arena.alloc_str(""), "");
    assert_eq!((arena.chunks(), arena.capacity()), (0, 0));
}

#[test]
fn a_request_at_steady_state_calls_neither_malloc_nor_free() {
    const ROUNDS: usize = if cfg!(miri) { 3 } else { 100 };
    let mut arena = Arena::with_chunk_size(4096);
    let request = |arena: &mut Arena| {
        for n in 0..200 {
            bytes(arena, n);
        }
        bytes(arena, 100_000);
        bytes(arena, 70_000);
        arena.reset();
    };
    for _ in 0..3 {
        request(&mut arena);
    }
    assert_eq!(heap::calls(|| (0..ROUNDS).for_each(|_| request(&mut arena))), (0, 0));
}

#[test]
fn a_burst_is_forgotten() {
    let mut arena = Arena::new();
    bytes(&arena, 3000);
    arena.reset();
    for n in 0..2000usize {
        bytes(&arena, n % 500);
    }
    bytes(&arena, 1_000_000);
    arena.reset();
    assert!(arena.capacity() > 1_400_000);
    for _ in 0..80 {
        bytes(&arena, 300);
        arena.reset();
    }
    assert!(arena.capacity() < 1024, "{} bytes", arena.capacity());
}

#[test]
fn a_middling_size_gets_few_dedicated_chunks() {
    const MIDDLING: usize = if cfg!(miri) { 1000 } else { 20_000 };
    // Too large to share the small chunks, also if those are kept from an earlier period.
    let mut arena = Arena::new();
    for period in 0..4 {
        for n in 0..MIDDLING {
            bytes(&arena, if period == 0 { 8 } else { 300 + n % 7 });
        }
        assert!(
            arena.dedicated_chunks() < 120,
            "{} at the side in period {period}",
            arena.dedicated_chunks()
        );
        arena.reset();
    }
}

fn address(byte: &u8) -> *const u8 {
    std::ptr::from_ref(byte)
}

/// Allocates without writing, because only memory is counted here, and Miri counts every byte
/// written.
fn bytes(arena: &Arena, size: usize) {
    arena.alloc_layout(Layout::from_size_align(size, 1).unwrap());
}
