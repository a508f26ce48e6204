//! Random programs of operations, checked against a list of the ranges that are in use.

use std::alloc::Layout;
use std::ptr::NonNull;

use rookery_arena::{Arena, Growth};

use crate::random::Random;

struct Live {
    start: NonNull<u8>,
    layout: Layout,
    pattern: u8,
}

/// Runs a program of `steps` operations and checks after each that nothing overlaps, that every address is aligned,
/// and at the end of each period that every byte is as it was written.
fn run(seed: u64, steps: usize, growth: Growth) {
    let mut random = Random(seed);
    let mut arena = Arena::with_growth(growth);
    let mut live: Vec<Live> = Vec::new();
    for step in 0..steps {
        match random.between(0, 99) {
            0..=79 => {
                let size = match random.between(0, 9) {
                    0 => 0,
                    1..=6 => random.between(1, 64),
                    7 | 8 => random.between(65, 2000),
                    _ => random.between(2001, if cfg!(miri) { 6000 } else { 40_000 }),
                };
                let layout = Layout::from_size_align(size, 1 << random.between(0, 12)).unwrap();
                let start = arena.alloc_layout(layout);
                live.push(write(Live { start, layout, pattern: step as u8 }, 0));
            }
            80..=96 => {
                let Some(old) = live.pop() else { continue };
                check(&old);
                let size = old.layout.size() + random.between(0, 500);
                let layout = Layout::from_size_align(size, old.layout.align()).unwrap();
                // SAFETY: `old` is a live allocation of this arena, taken out of the list; the new one is no smaller.
                let start = unsafe { arena.try_grow(old.start, old.layout, layout) }.unwrap();
                let kept = old.layout.size();
                live.push(write(Live { start, layout, pattern: old.pattern }, kept));
                check(live.last().unwrap());
            }
            _ => {
                verify(&live);
                live.clear();
                if random.between(0, 3) == 0 {
                    arena.release();
                    assert_eq!(arena.capacity(), 0);
                } else {
                    arena.reset();
                }
                assert!(arena.is_empty());
            }
        }
        let requested: usize = live.iter().map(|live| live.layout.size()).sum();
        assert!(arena.capacity() >= requested, "{requested} bytes in use");
        assert!(arena.len() >= requested && arena.len() <= arena.capacity());
    }
    verify(&live);
}

fn write(live: Live, from: usize) -> Live {
    assert_eq!(live.start.addr().get() % live.layout.align(), 0);
    for at in from..live.layout.size() {
        // SAFETY: inside an allocation of this size that nobody else uses.
        unsafe { live.start.add(at).write(live.pattern.wrapping_add(at as u8)) };
    }
    live
}

fn check(live: &Live) {
    for at in 0..live.layout.size() {
        // SAFETY: inside an allocation of this size, written by `write`.
        let byte = unsafe { live.start.add(at).read() };
        assert_eq!(byte, live.pattern.wrapping_add(at as u8), "byte {at} of {:?}", live.layout);
    }
}

fn verify(live: &[Live]) {
    let mut ranges: Vec<_> = live
        .iter()
        .filter(|live| live.layout.size() > 0)
        .map(|live| (live.start.addr().get(), live.start.addr().get() + live.layout.size()))
        .collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two allocations overlap");
    live.iter().for_each(check);
}

const PROGRAMS: u64 = if cfg!(miri) { 1 } else { 20 };
const STEPS: usize = if cfg!(miri) { 80 } else { 1000 };

#[test]
fn random_programs_with_the_default_growth() {
    (0..PROGRAMS).for_each(|seed| run(seed, STEPS, Growth::default()));
}

#[test]
fn random_programs_with_small_chunks() {
    (0..PROGRAMS).for_each(|seed| run(1000 + seed, STEPS, Growth::new(128, 1024)));
}

#[test]
fn random_programs_with_chunks_of_one_size() {
    (0..PROGRAMS).for_each(|seed| run(2000 + seed, STEPS, Growth::fixed(32 * 1024)));
}
