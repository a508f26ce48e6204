//! Models of two threads that use a `SyncArena`. Loom (a model checker) runs each model in every
//! order of the threads' steps with at most three preemptions. The models are run by
//! `scripts/soundness model`, or
//! `RUSTFLAGS="--cfg loom" cargo test -p rookery-arena --lib --release`.
//!
//! With three preemptions, all models together take 5 s. With four they take over 30 s, and without
//! a limit, two of the models had not ended after ten minutes. `LOOM_MAX_PREEMPTIONS` sets another
//! limit.
//!
//! To test the models themselves, each atomic update of `node.rs`, `shard.rs` and `mod.rs` was once
//! replaced by a separate load and store. A model failed each time, with one exception: the update
//! in `take_spare` that lets later searches skip spares in use. Losing that update only makes these
//! searches slower.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::vec::Vec;

use loom::sync::Arc;
use loom::thread;

use super::{HEADER, SyncArena};
use crate::layout::Growth;

const CHUNK: Growth = Growth::fixed(1024);

/// Runs `work` as a loom model: in every order of its threads' steps with at most three
/// preemptions.
fn model(work: impl Fn() + Send + Sync + 'static) {
    model_within(3, work);
}

fn model_within(preemptions: usize, work: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(work);
}

/// Returns the layout of an eighth of a chunk, the largest allocation that is served from a shared
/// chunk.
fn block() -> Layout {
    Layout::from_size_align((Growth::asked(CHUNK.max()) - HEADER) / 8, 1).unwrap()
}

/// Allocates memory, fills it with `mark`, and returns its address, its size and `mark`. If another
/// thread wrongly gets the same memory, `check` later finds another value in it.
fn take(arena: &SyncArena, layout: Layout, mark: u8) -> (usize, usize, u8) {
    let start = arena.try_alloc_layout(layout).unwrap();
    // SAFETY: just allocated.
    unsafe { start.write_bytes(mark, layout.size()) };
    (start.as_ptr().expose_provenance(), layout.size(), mark)
}

fn check(arena: &SyncArena, mut taken: Vec<(usize, usize, u8)>) {
    taken.sort_unstable();
    assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "overlap: {taken:?}");
    assert_eq!(arena.len(), taken.iter().map(|(_, size, _)| size).sum::<usize>());
    for (start, size, mark) in taken {
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut::<u8>(start)).unwrap();
        // SAFETY: allocated with this size and not yet reset.
        assert!((0..size).all(|at| unsafe { start.add(at).read() } == mark));
    }
}

/// Runs `work` on two threads at once. Each thread fills its allocations with the number that
/// `work` gets as its second argument. Returns the allocations of both threads.
fn both(
    arena: &Arc<SyncArena>,
    work: impl Fn(&SyncArena, u8) -> Vec<(usize, usize, u8)> + Send + Clone + 'static,
) -> Vec<(usize, usize, u8)> {
    let (there, arena_there) = (work.clone(), Arc::clone(arena));
    let thread = thread::spawn(move || there(&arena_there, 1));
    let mut taken = work(arena, 2);
    taken.extend(thread.join().unwrap());
    taken
}

#[test]
fn two_threads_make_the_first_chunk() {
    model(|| {
        let arena = Arc::new(SyncArena::with_growth(CHUNK));
        let taken = both(&arena, |arena, mark| [take(arena, block(), mark)].into());
        check(&arena, taken);
        assert_eq!((arena.chunks(), arena.capacity()), (1, Growth::asked(CHUNK.max())));
    });
}

#[test]
fn two_threads_share_a_chunk_and_both_find_it_full() {
    model(|| {
        let arena = Arc::new(SyncArena::with_growth(CHUNK));
        let mut taken: Vec<_> = (0..7).map(|_| take(&arena, block(), 9)).collect();
        taken.extend(both(&arena, |arena, mark| {
            [take(arena, block(), mark), take(arena, block(), mark)].into()
        }));
        check(&arena, taken);
        assert_eq!((arena.chunks(), arena.capacity()), (2, 2 * Growth::asked(CHUNK.max())));
    });
}

#[test]
fn a_chunk_kept_from_before_is_entered_once() {
    model(|| {
        let mut arena = SyncArena::with_growth(CHUNK);
        (0..10).for_each(|_| _ = take(&arena, block(), 9));
        arena.reset();
        let capacity = arena.capacity();
        let mut taken: Vec<_> = (0..8).map(|_| take(&arena, block(), 9)).collect();
        let arena = Arc::new(arena);
        taken.extend(both(&arena, |arena, mark| [take(arena, block(), mark)].into()));
        check(&arena, taken);
        assert_eq!((arena.chunks(), arena.capacity()), (2, capacity));
    });
}

#[test]
fn a_thread_that_falls_behind_does_not_move_the_chain_back() {
    // Enough to fall behind; with two threads, ten allocations would take half a minute.
    model_within(1, || {
        let arena = Arc::new(SyncArena::with_growth(CHUNK));
        let mut taken: Vec<_> = (0..8).map(|_| take(&arena, block(), 9)).collect();
        // Each thread finds the first chunk full. One of them may fill the second before the other
        // has moved on to it.
        let there = Arc::clone(&arena);
        let thread = thread::spawn(move || take(&there, block(), 1));
        taken.extend((0..9).map(|_| take(&arena, block(), 2)));
        taken.push(thread.join().unwrap());
        // Counts the bytes up to the position of the chain, which are fewer if the position went
        // back.
        check(&arena, taken);
    });
}

#[test]
fn two_threads_give_large_requests_dedicated_chunks() {
    let large = Layout::from_size_align(5000, 16).unwrap();
    model(move || {
        let arena = Arc::new(SyncArena::with_growth(CHUNK));
        let taken = both(&arena, move |arena, mark| {
            [take(arena, large, mark), take(arena, block(), mark)].into()
        });
        check(&arena, taken);
        assert_eq!(arena.chunks(), 3);
    });
}

#[test]
fn a_spare_is_taken_by_one() {
    let large = Layout::from_size_align(5000, 16).unwrap();
    model(move || {
        let mut arena = SyncArena::with_growth(CHUNK);
        take(&arena, large, 9);
        arena.reset();
        let arena = Arc::new(arena);
        let taken = both(&arena, move |arena, mark| [take(arena, large, mark)].into());
        let mut taken = taken;
        taken.sort_unstable();
        assert!(taken[0].0 + taken[0].1 <= taken[1].0, "overlap: {taken:?}");
        assert_eq!(arena.chunks(), 2);
    });
}

#[test]
fn two_threads_do_not_pass_the_limit_together() {
    model(|| {
        let mut arena = SyncArena::with_growth(CHUNK);
        arena.set_allocation_limit(Some(6000));
        let arena = Arc::new(arena);
        let large = Layout::from_size_align(4000, 16).unwrap();
        let there = Arc::clone(&arena);
        let thread = thread::spawn(move || there.try_alloc_layout(large).is_ok());
        let here = arena.try_alloc_layout(large).is_ok();
        assert!(here != thread.join().unwrap(), "one of them and only one");
        assert!(arena.capacity() <= 6000);
    });
}
