//! Pools: the arenas and keys that they keep, and the effects of their limits.

use rookery_arena::collections::String;
use rookery_arena::{Pool, PoolLimits};

use crate::heap;

fn use_bytes(pool: &Pool<&'static str>, key: &'static str, bytes: usize) -> usize {
    let arena = pool.take(key);
    for _ in 0..bytes / 100 {
        arena.alloc_uninit::<[u8; 100]>();
    }
    arena.chunks()
}

#[test]
fn a_returned_arena_is_empty_and_is_taken_again() {
    let pool = Pool::new();
    let first = pool.take(1);
    let address = std::ptr::from_ref(first.alloc([1u64; 20])).addr();
    drop(first);
    assert_eq!((pool.arenas(), pool.keys()), (1, 1));
    let again = pool.take(1);
    assert!(again.is_empty());
    assert_eq!(std::ptr::from_ref(again.alloc([2u64; 20])).addr(), address);
    assert_eq!((pool.arenas(), pool.bytes()), (0, 0));
}

#[test]
fn keys_do_not_share_arenas() {
    let pool = Pool::new();
    use_bytes(&pool, "large", 50_000);
    let small = pool.take("small");
    assert_eq!((small.capacity(), pool.arenas()), (0, 1));
}

#[test]
fn a_new_arena_has_the_size_that_its_key_needs() {
    let pool = Pool::new();
    assert!(use_bytes(&pool, "page", 40_000) > 5, "the first grows from small");
    let waiting = pool.take("page");
    // The kept arena is in use, so this one is made, in one chunk.
    assert_eq!(use_bytes(&pool, "page", 40_000), 1);
    assert_eq!(pool.high_water(&"page"), Some(40_000));
    drop(waiting);
}

#[test]
fn a_key_that_needs_less_shrinks() {
    let pool = Pool::new();
    use_bytes(&pool, "page", 400_000);
    let waiting = pool.take("page");
    use_bytes(&pool, "page", 400_000);
    drop(waiting);
    for _ in 0..100 {
        use_bytes(&pool, "page", 1000);
    }
    assert!(pool.bytes() < 16_000, "{}", pool.bytes());
    assert_eq!(pool.high_water(&"page"), Some(1000));
}

#[test]
fn a_use_of_several_periods_counts_its_largest() {
    let pool = Pool::new();
    let mut arena = pool.take("page");
    arena.alloc_uninit::<[u8; 50_000]>();
    arena.reset();
    arena.alloc_uninit::<[u8; 100]>();
    drop(arena);
    assert_eq!(pool.high_water(&"page"), Some(50_000));
}

/// A peak that the arena kept from the use before would keep the mark up for twice as long.
#[test]
fn each_use_counts_from_its_own_beginning() {
    let pool = Pool::new();
    use_bytes(&pool, "page", 40_000);
    assert_eq!(pool.take("page").peak(), 0);
    // An arena that was taken and not used counts as a use of zero bytes.
    assert_eq!(pool.high_water(&"page"), Some(40_000 / 8 * 7));
    use_bytes(&pool, "page", 100);
    assert_eq!(pool.high_water(&"page"), Some(40_000 / 64 * 49));
    let arena = pool.take("page");
    arena.alloc_uninit::<[u8; 500]>();
    assert_eq!(arena.peak(), 500);
}

#[test]
fn a_limit_ends_with_the_use_that_set_it() {
    let pool = Pool::new();
    pool.take("page").set_allocation_limit(Some(1));
    let arena = pool.take("page");
    assert_eq!(arena.allocation_limit(), None);
    arena.alloc(1u8);
}

#[test]
fn steady_state_calls_neither_malloc_nor_free() {
    let pool = Pool::new();
    let keys = ["a", "b", "c"];
    let round = || keys.into_iter().for_each(|key| _ = use_bytes(&pool, key, 5_000));
    (0..3).for_each(|_| round());
    assert_eq!(heap::calls(|| (0..50).for_each(|_| round())), (0, 0));
}

#[test]
fn limits_bound_the_arenas_that_are_kept() {
    let limits = PoolLimits::default().with_max_bytes(100_000).with_max_arenas(3).with_max_keys(2);
    assert_eq!((limits.max_bytes, limits.max_arenas, limits.max_keys), (100_000, 3, 2));
    let pool = Pool::with_limits(limits);
    let taken: Vec<_> = (0..5).map(|_| pool.take("many")).collect();
    for arena in &taken {
        arena.alloc(1u8);
    }
    drop(taken);
    assert_eq!(pool.arenas(), 3);
    use_bytes(&pool, "large", 99_900);
    assert!(pool.bytes() <= 100_000 && pool.arenas() == 3);
    use_bytes(&pool, "third", 100);
    assert_eq!((pool.keys(), pool.high_water(&"many"), pool.arenas()), (2, None, 1));
}

#[test]
fn an_arena_of_a_removed_key_does_not_return_to_another_key() {
    let pool = Pool::with_limits(PoolLimits::default().with_max_keys(1));
    let old = pool.take("old");
    old.alloc_uninit::<[u8; 100_000]>();
    use_bytes(&pool, "new", 100);
    drop(old);
    assert_eq!((pool.arenas(), pool.high_water(&"new")), (1, Some(100)));
    pool.clear();
    assert_eq!((pool.arenas(), pool.bytes(), pool.keys()), (0, 0, 0));
}

/// Only the limits bound the arenas that are kept, whatever their size.
#[test]
fn large_arenas_are_kept_as_far_as_the_limits_allow() {
    let large = |pool: &Pool<&'static str>, bytes: usize| {
        let arena = pool.take("big");
        for _ in 0..bytes / 65_536 {
            arena.alloc_uninit::<[u8; 65_536]>();
        }
    };
    for megabytes in if cfg!(miri) { [5, 5] } else { [5, 40] } {
        let pool = Pool::with_limits(PoolLimits::default().with_max_bytes(1 << 30));
        let use_large = || large(&pool, megabytes << 20);
        (0..20).for_each(|_| use_large());
        assert_eq!((pool.arenas(), pool.high_water(&"big")), (1, Some(megabytes << 20)));
        assert!(pool.bytes() >= megabytes << 20);
        assert_eq!(heap::calls(|| (0..5).for_each(|_| use_large())), (0, 0));
    }
    let pool = Pool::with_limits(PoolLimits::default().with_max_bytes(4 << 20));
    large(&pool, 5 << 20);
    assert_eq!((pool.arenas(), pool.bytes()), (0, 0));
}

#[test]
fn a_text_that_grows_in_a_pooled_arena_calls_no_malloc_once_warm() {
    let pool = Pool::new();
    let piece = "x".repeat(if cfg!(miri) { 1000 } else { 100 });
    let request = || {
        let arena = pool.take("page");
        let mut page = String::new_in(&arena);
        (0..60_000 / piece.len()).for_each(|_| page.push_str(&piece));
    };
    (0..20).for_each(|_| request());
    assert_eq!(heap::calls(|| (0..10).for_each(|_| request())), (0, 0));
}

#[test]
fn a_pool_moves_between_threads_with_its_keys() {
    fn is_send<T: Send>(_: &T) {}
    let pool = Pool::new();
    is_send(&pool);
    pool.take("page").alloc(1u8);
    let arenas = std::thread::spawn(move || pool.arenas()).join().expect("no panic");
    assert_eq!(arenas, 1);
}
