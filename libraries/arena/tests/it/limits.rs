//! Limits, errors and panics.

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rookery_arena::{AllocError, Arena, Growth};

fn message(work: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).expect_err("a panic");
    panic.downcast_ref::<String>().cloned().expect("a formatted message")
}

#[test]
fn a_limit_refuses_and_names_itself() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(10_000));
    assert_eq!(arena.allocation_limit(), Some(10_000));
    let error = arena.try_alloc_slice_fill(20_000, 0u8).unwrap_err();
    assert_eq!((error.requested(), error.limit()), (20_000, Some(10_000)));
    let text = message(|| _ = arena.alloc_slice_fill(20_000, 0u8).len());
    assert_eq!(text, "arena: cannot allocate 20000 bytes: the arena may hold at most 10000");
}

#[test]
fn nothing_passes_the_limit_and_nearly_all_of_it_is_used() {
    for size in if cfg!(miri) { &[700, 5000][..] } else { &[1, 10, 100, 700, 5000] } {
        let size = *size;
        let mut arena = Arena::new();
        arena.set_allocation_limit(Some(100_000));
        while arena.try_alloc_slice_fill(size, 1u8).is_ok() {
            assert!(arena.capacity() <= 100_000);
        }
        assert!(arena.len() > 80_000, "{} bytes of {size}", arena.len());
        // The arena is still usable.
        arena.reset();
        assert!(arena.try_alloc_slice_fill(size, 1u8).is_ok());
    }
}

#[test]
fn memory_kept_for_reuse_is_freed_for_the_limit() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(1_000_000));
    arena.alloc_uninit::<[u8; 900_000]>();
    arena.reset();
    assert!(arena.capacity() > 900_000);
    assert!(arena.try_alloc_uninit::<[u8; 500_000]>().is_ok());
    assert!(arena.capacity() < 600_000);
}

#[test]
fn a_limit_can_be_raised_and_removed() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(0));
    assert!(arena.try_alloc(1u8).is_err());
    assert_eq!(arena.try_alloc(()), Ok(&mut ()));
    arena.set_allocation_limit(None);
    assert_eq!(arena.try_alloc(1u8), Ok(&mut 1));
    assert_eq!(arena.allocation_limit(), None);
}

#[test]
fn sizes_past_an_object_are_refused() {
    let arena = Arena::new();
    let error = arena.try_alloc_slice_fill(usize::MAX / 4, 0u64).unwrap_err();
    assert_eq!((error.requested(), error.limit()), (usize::MAX, None));
    let text = message(|| _ = arena.alloc_slice_zeroed::<u64>(usize::MAX / 8).len());
    assert_eq!(text, "arena: cannot allocate more bytes than an object can have");
    for align in [1, 8, 4096] {
        let layout = Layout::from_size_align(isize::MAX as usize - (align - 1), align).unwrap();
        assert!(arena.try_alloc_layout(layout).is_err());
        assert!(arena.try_alloc(0u8).is_ok());
    }
}

#[test]
#[cfg(not(miri))] // Miri's allocator aborts
fn memory_that_the_allocator_refuses_is_an_error() {
    let arena = Arena::new();
    let layout = Layout::from_size_align(1 << 62, 16).unwrap();
    assert_eq!(arena.try_alloc_layout(layout).map_err(|error| error.limit()), Err(None));
    let text = message(|| _ = arena.alloc_layout(layout));
    assert_eq!(
        text,
        format!("arena: cannot allocate {} bytes: the allocator has no memory left", 1u64 << 62)
    );
}

#[test]
fn the_error_is_two_words() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<AllocError>();
    assert_eq!(size_of::<AllocError>(), 2 * size_of::<usize>());
}

#[test]
fn a_value_maker_that_panics_leaves_the_arena_usable() {
    let arena = Arena::new();
    assert_eq!(message(|| _ = arena.alloc_with::<u32>(|| panic!("{}", "no value"))), "no value");
    assert_eq!(*arena.alloc(5u32), 5);
}

#[test]
fn a_value_maker_may_allocate() {
    let arena = Arena::new();
    let outer =
        arena.alloc_with(|| (arena.alloc_slice_fill(1000, 3u8), arena.alloc_str("inner"), 7u64));
    assert_eq!((outer.0[999], &*outer.1, outer.2), (3, "inner", 7));
}

#[test]
fn zeroed_memory_is_zero_where_old_contents_were() {
    let mut arena = Arena::new();
    arena.alloc_slice_fill(400, 0xFFu8);
    arena.reset();
    assert!(arena.alloc_slice_zeroed::<u8>(400).iter().all(|byte| *byte == 0));
}

#[test]
fn an_arena_moves_between_threads() {
    let arena = Arena::new();
    arena.alloc_str("here");
    let arena = std::thread::spawn(move || {
        arena.alloc_str("there");
        arena
    });
    assert_eq!(arena.join().unwrap().len(), 9);
}

#[test]
fn every_alignment_up_to_a_page_and_past_it() {
    let arena = Arena::new();
    for shift in 0..=16 {
        for size in [1, 24, 1000, 40_000] {
            let layout = Layout::from_size_align(size, 1 << shift).unwrap();
            assert_eq!(arena.alloc_layout(layout).addr().get() % (1 << shift), 0);
            arena.alloc(1u8);
        }
    }
}

#[test]
fn the_peak_is_of_all_periods_and_the_mark_decays() {
    let mut arena = Arena::new();
    arena.alloc_uninit::<[u8; 100_000]>();
    arena.reset();
    arena.alloc_uninit::<[u8; 1000]>();
    assert_eq!((arena.peak(), arena.len()), (100_000, 1000));
    let mark = arena.high_water();
    (0..20).for_each(|_| arena.reset());
    assert!(arena.high_water() < mark / 8);
    assert_eq!(arena.peak(), 100_000);
    arena.release();
    assert_eq!((arena.peak(), arena.high_water()), (0, 0));
}

/// Any number is accepted as a size: each constructor and each property of a growth is defined for
/// all numbers.
#[test]
fn every_growth_is_one() {
    for size in
        [0, 1, 15, 16, 31, 32, 127, 128, 129, 4096, usize::MAX / 16, usize::MAX - 1, usize::MAX]
    {
        assert!(Growth::asked(size) >= 96, "{size}");
        for growth in [Growth::new(size, 0), Growth::new(0, size), Growth::fixed(size)] {
            assert!(growth.first() >= 128 && growth.first() <= growth.max());
            assert!(
                growth.first() % 16 == 0
                    && growth.max() % 16 == 0
                    && growth.max() <= usize::MAX / 16 + 1
            );
            assert!(growth.after(size) >= growth.first() && growth.after(size) <= growth.max());
            assert!(growth.largest_shared() < growth.max() / 8);
        }
    }
    assert_eq!(Growth::default(), Arena::new().growth());
}
