//! Collections of other crates in an arena.

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};
use rookery_arena::{Arena, SyncArena};

use crate::heap;

#[test]
fn a_map_of_hashbrown_is_in_the_arena() {
    let mut arena = Arena::new();
    let fill = |arena: &Arena| {
        let mut map = HashMap::with_hasher_in(DefaultHashBuilder::default(), arena);
        map.extend((0..200).map(|number| (number, 2 * number)));
        assert!((0..200).all(|number| map[&number] == 2 * number));
    };
    for _ in 0..30 {
        fill(&arena);
        arena.reset();
    }
    assert_eq!(heap::calls(|| fill(&arena)), (0, 0), "the arena has the memory");
}

#[test]
fn an_array_of_another_crate_grows_in_place() {
    let arena = Arena::with_chunk_size(8192);
    let mut array = Vec::new_in(&arena);
    array.push(0u32);
    let start = array.as_ptr();
    array.extend(1..500);
    assert_eq!((array.as_ptr(), arena.chunks()), (start, 1));
}

#[test]
fn a_block_that_shrinks_and_grows_again_is_counted_once() {
    let arena = Arena::with_chunk_size(1024);
    let mut large = Vec::with_capacity_in(10_000, &arena);
    assert_eq!(arena.dedicated_chunks(), 1);
    large.extend([1u8; 1000]);
    for _ in 0..100 {
        large.shrink_to_fit();
        large.reserve_exact(9_000);
        assert!(arena.len() <= arena.capacity(), "{} bytes", arena.len());
    }
    assert!(arena.capacity() < 12_000 && *large == [1; 1000]);
}

#[test]
fn blocks_change_their_alignment() {
    fn check(allocator: impl Allocator) {
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let bytes = |start: NonNull<[u8]>, len| {
            // SAFETY: the first `len` bytes were written below.
            unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u8>(), len) }
        };
        let aligned = |start: NonNull<[u8]>, align| start.cast::<u8>().addr().get() % align == 0;
        allocator.allocate(layout(1, 1)).unwrap();
        let block = allocator.allocate(layout(24, 1)).unwrap();
        // SAFETY: each call has the layout of the last one, and 24 bytes are written.
        unsafe {
            block.cast::<u8>().write_bytes(7, 24);
            let block = allocator.grow(block.cast(), layout(24, 1), layout(100, 512)).unwrap();
            assert!(aligned(block, 512) && bytes(block, 24) == [7; 24]);
            let block = allocator.shrink(block.cast(), layout(100, 512), layout(20, 2)).unwrap();
            assert!(block.len() == 20 && bytes(block, 20) == [7; 20]);
            let block = allocator.shrink(block.cast(), layout(20, 2), layout(16, 4096)).unwrap();
            assert!(aligned(block, 4096) && bytes(block, 16) == [7; 16]);
            let block = allocator.grow_zeroed(block.cast(), layout(16, 4096), layout(32, 4096));
            assert_eq!(bytes(block.unwrap(), 32), [[7; 16], [0; 16]].concat());
        }
    }
    check(&Arena::new());
    check(&SyncArena::new());
}

#[test]
fn a_limit_is_an_error_of_the_allocator() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(1000));
    let mut array = Vec::<u64, _>::new_in(&arena);
    assert!(array.try_reserve(1000).is_err() && array.try_reserve(10).is_ok());
}

#[test]
fn threads_fill_arrays_in_one_arena() {
    let arena = SyncArena::new();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let arena = &arena;
            scope.spawn(move || {
                let mut array = Vec::new_in(arena);
                array.extend((0..100).map(|number| number * thread));
                assert!(array.iter().enumerate().all(|(at, number)| *number == at * thread));
            });
        }
    });
}
