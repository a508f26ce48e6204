//! Random programs of operations, checked against a list of the ranges in use.

use std::alloc::Layout;
use std::ptr::NonNull;

use rookery_arena::{Arena, Growth};

use crate::random::Random;

struct Live {
    start: NonNull<u8>,
    layout: Layout,
    pattern: u8,
}

impl Live {
    /// The expected contents, counted up from a pattern. They are copied and compared as a whole,
    /// which is fast under Miri.
    fn expected(&self) -> &'static [u8] {
        static COUNTED: [u8; 64 * 1024] = {
            let mut bytes = [0; 64 * 1024];
            let mut at = 0;
            while at < bytes.len() {
                bytes[at] = at as u8;
                at += 1;
            }
            bytes
        };
        &COUNTED[usize::from(self.pattern)..][..self.layout.size()]
    }
}

/// Runs a program of `steps` operations. Checks after each that nothing overlaps and that every
/// address is aligned, and at the end of each period that every byte is as it was written.
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
                // SAFETY: `old` is a live allocation of this arena, taken out of the list, and the
                // new one is not smaller.
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
    let expected = live.expected();
    // SAFETY: the bytes are inside an allocation of this size that nothing else uses.
    unsafe {
        live.start
            .as_ptr()
            .add(from)
            .copy_from_nonoverlapping(expected[from..].as_ptr(), expected.len() - from);
    }
    live
}

fn check(live: &Live) {
    // SAFETY: an allocation of this size, written by `write`.
    let bytes = unsafe { std::slice::from_raw_parts(live.start.as_ptr(), live.layout.size()) };
    assert!(bytes == live.expected(), "{:?} is not as it was written", live.layout);
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

const PROGRAMS: u64 = if cfg!(miri) { 3 } else { 20 };
const STEPS: usize = if cfg!(miri) { 150 } else { 1000 };

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
