//! Fuzz targets of the arena: its arithmetic, sequences of operations, and the collections compared
//! with those of std.

#![allow(clippy::disallowed_methods, reason = "a fuzz target may panic")]

mod pool;
mod sync;

use std::alloc::Layout;
use std::io::{BufRead, Read, Write};
use std::ptr::NonNull;

use rookery_arena::collections::{Buffer, Vec as ArenaVec};
use rookery_arena::layout::{self, CHUNK_ALIGN, Overflow};
use rookery_arena::{Arena, Growth};

pub use pool::arena_pool;
pub use sync::arena_sync;

/// Reads numbers from the input, and zeros after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Reads a word with a magnitude that is also read, so that small, large and wrapping values
    /// occur.
    fn word(&mut self) -> usize {
        let shift = u32::from(self.byte()) % usize::BITS;
        let word = (0..8).fold(0, |word, _| word << 8 | usize::from(self.byte()));
        if shift % 2 == 0 { word >> shift } else { !(word >> shift) }
    }

    fn layout(&mut self) -> Option<Layout> {
        let align = 1usize << (self.byte() % 63);
        Layout::from_size_align(self.word(), align).ok()
    }
}

/// Checks that fits, placements and growth have their documented properties for any integers.
pub fn arena_layout(data: &[u8]) {
    let mut input = Input(data);
    while !input.0.is_empty() {
        let Some(layout) = input.layout() else { continue };
        let (a, b) = (input.word().max(1), input.word().max(1));
        check_fit(a.min(b), a.max(b), layout);

        let room = layout::room_for(layout);
        assert!(room >= layout.size());
        if let Some(bytes) = layout::exact_chunk(room) {
            assert!(
                bytes >= room + layout::HEADER
                    && bytes % CHUNK_ALIGN == 0
                    && bytes < isize::MAX as usize
            );
        }

        let (tail, next, misses) = (input.word() % room.max(1), input.word(), input.word());
        // The bound on waste: an abandoned tail is less than an eighth of the chunk that replaces
        // it.
        if layout::place(room, tail, next, misses) == Overflow::Next {
            assert!(room <= next / 8 && (tail < next / 8 || room == 0));
        }

        let capacity = input.word();
        if layout::suits(capacity, room) {
            assert!(capacity >= room && capacity - room <= room / 8 + CHUNK_ALIGN);
        }
        let (mark, used) = (input.word(), input.word());
        let decayed = layout::decayed(mark, used);
        assert!(
            decayed >= used
                && decayed <= mark.max(used)
                && (decayed < mark || decayed == used || mark == 0)
        );

        let (first, needed) = (input.word(), input.word());
        let kept = layout::kept_capacity(capacity, first, needed);
        assert!(kept <= capacity && kept >= capacity.min(first.max(needed)));
        assert!(kept == capacity || kept % CHUNK_ALIGN == 0);
        assert_eq!(layout::is_alike(first, room), first.abs_diff(room) <= room / 8 + CHUNK_ALIGN);

        // A nominal size can be any integer, also one that no growth produces.
        let asked = Growth::asked(input.word());
        assert!(asked >= layout::MIN_CHUNK - layout::ALLOCATOR_OVERHEAD);

        let growth = Growth::new(input.word(), input.word());
        let (first, max) = (growth.first(), growth.max());
        assert!(layout::MIN_CHUNK <= first && first <= max && max <= layout::MAX_CHUNK);
        let mut nominal = first;
        for _ in 0..usize::BITS {
            let after = growth.after(nominal);
            assert!(after >= nominal && after <= max && (after == max || after == 2 * nominal));
            assert!(
                Growth::asked(after) % CHUNK_ALIGN == 0 && Growth::asked(after) > layout::HEADER
            );
            nominal = after;
        }
        assert_eq!(nominal, max);
    }
}

/// Compares `fit` and `fit_whole` with the same arithmetic in 128 bits, which cannot wrap.
fn check_fit(cursor: usize, end: usize, layout: Layout) {
    if end - cursor > isize::MAX as usize {
        return;
    }
    let (size, align) = (layout.size() as u128, layout.align() as u128);
    let start = (cursor as u128).next_multiple_of(align);
    let expected = (start + size <= end as u128).then_some((start, start + size));
    let found = layout::fit(cursor, end, layout).map(|fit| (fit.start as u128, fit.end as u128));
    assert_eq!(found, expected, "{layout:?} between {cursor:#x} and {end:#x}");
    if layout.size() % layout.align() == 0 {
        let whole =
            layout::fit_whole(cursor, end, layout).map(|fit| (fit.start as u128, fit.end as u128));
        assert_eq!(whole, expected, "{layout:?} between {cursor:#x} and {end:#x}");
    }
}

/// A live allocation, in which every byte is `mark`.
struct Live {
    start: NonNull<u8>,
    layout: Layout,
    mark: u8,
}

impl Live {
    fn fill(self, from: usize) -> Live {
        assert_eq!(self.start.addr().get() % self.layout.align(), 0);
        // SAFETY: a live allocation of this size, whose bytes before `from` are already written.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr().add(from), self.layout.size() - from)
        };
        bytes.fill(self.mark);
        self
    }

    fn check(&self) {
        // SAFETY: a live allocation of this size, which `fill` has written.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) };
        // With memcmp, because an instrumented loop over bytes took most of the time.
        let pattern = [self.mark; 4096];
        assert!(bytes.chunks(4096).all(|part| part == &pattern[..part.len()]), "{:?}", self.layout);
    }
}

/// Runs a sequence of operations on an arena, and checks overlaps, alignment, contents, limits and
/// waste.
pub fn arena_operations(data: &[u8]) {
    let mut input = Input(data);
    let growth = match input.byte() % 3 {
        0 => Growth::default(),
        1 => Growth::new(usize::from(input.byte()), 4096),
        _ => Growth::fixed(1024 * usize::from(1 + input.byte() % 32)),
    };
    let mut arena = Arena::with_growth(growth);
    let mut live: Vec<Live> = Vec::new();
    // True until an allocation moves or chunks are kept from an earlier period. Until then, all
    // reserved memory serves live allocations.
    let mut is_fresh = true;
    let (mut requested, mut padding) = (0, 0);
    while !input.0.is_empty() {
        let operation = input.byte();
        match operation % 8 {
            0..=4 => {
                let scale = [16, 64, 512, 8192, 70_000][usize::from(operation % 5)];
                let size = (usize::from(input.byte()) << 8 | usize::from(input.byte())) % scale;
                let layout =
                    Layout::from_size_align(size, 1 << (input.byte() % 13)).expect("small");
                if let Ok(start) = arena.try_alloc_layout(layout) {
                    requested += size;
                    // Each request may add padding: up to its alignment, and up to the end of its
                    // chunk.
                    padding += layout.align() + 2 * CHUNK_ALIGN;
                    live.push(Live { start, layout, mark: live.len() as u8 }.fill(0));
                }
            }
            5 => {
                let Some(old) = live.pop() else { continue };
                is_fresh = false;
                let size = old.layout.size() + 8 * usize::from(input.byte());
                let layout = Layout::from_size_align(size, old.layout.align()).expect("small");
                // SAFETY: the allocation is live and no longer in the list, and the new layout is
                // no smaller.
                match unsafe { arena.try_grow(old.start, old.layout, layout) } {
                    Ok(start) => {
                        requested += size - old.layout.size();
                        live.push(Live { start, layout, mark: old.mark }.fill(old.layout.size()));
                    }
                    Err(_) => live.push(old),
                }
                live.iter().rev().take(2).for_each(Live::check);
            }
            6 => {
                let limit = usize::from(input.byte()) * 4096;
                arena.set_allocation_limit((limit != 0).then_some(limit.max(arena.capacity())));
            }
            _ => {
                verify(&arena, &live);
                live.clear();
                requested = 0;
                if input.byte() % 4 == 0 {
                    arena.release()
                } else {
                    arena.reset()
                }
                is_fresh = false;
                assert!(arena.is_empty());
            }
        }
        assert!(
            arena.len() >= requested
                && arena.capacity() >= arena.len()
                && arena.peak() >= arena.len()
        );
        assert!(arena.allocation_limit().is_none_or(|limit| arena.capacity() <= limit));
        if is_fresh {
            let chunks = arena.chunks() * (layout::HEADER + CHUNK_ALIGN);
            let bound = arena.capacity() / 8 + growth.max() + padding + chunks;
            assert!(arena.capacity() - requested <= bound, "{arena:?} for {requested} bytes");
        }
    }
    verify(&arena, &live);
}

fn verify(arena: &Arena, live: &[Live]) {
    let mut ranges: Vec<_> = live
        .iter()
        .filter(|live| live.layout.size() > 0)
        .map(|live| (live.start.addr().get(), live.start.addr().get() + live.layout.size()))
        .collect();
    ranges.sort_unstable();
    assert!(
        ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "two allocations overlap in {arena:?}"
    );
    live.iter().for_each(Live::check);
}

/// Compares an array and a buffer in an arena, with other allocations between them, with those of
/// std.
pub fn arena_collections(data: &[u8]) {
    let mut input = Input(data);
    let arena = Arena::with_chunk_size(usize::from(input.byte()) * 16);
    let (mut array, mut array_model) = (ArenaVec::new_in(&arena), Vec::new());
    let (mut buffer, mut buffer_model) =
        (Buffer::new_in(&arena), std::collections::VecDeque::new());
    while !input.0.is_empty() {
        let (operation, count) = (input.byte(), usize::from(input.byte()) * 7);
        match operation % 8 {
            0 => {
                array.push(u32::from(operation));
                array_model.push(u32::from(operation));
            }
            1 => {
                array.extend_from_slice(&vec![count as u32; count]);
                array_model.extend_from_slice(&vec![count as u32; count]);
            }
            2 | 3 => {
                array.truncate(count);
                array_model.truncate(count);
            }
            4 => _ = arena.alloc_slice_fill(count, operation),
            5 => {
                buffer.write_all(&vec![operation; count]).expect("no limit");
                buffer_model.extend(vec![operation; count]);
            }
            6 => {
                let mut into = vec![0; count];
                let read = buffer.read(&mut into).expect("a buffer does not fail");
                assert_eq!(read, count.min(buffer_model.len()));
                assert!(into[..read].iter().all(|byte| Some(*byte) == buffer_model.pop_front()));
            }
            _ => {
                let count = count.min(buffer.fill_buf().expect("a buffer does not fail").len());
                buffer.consume(count);
                buffer_model.drain(..count);
            }
        }
        assert_eq!((array.len(), buffer.unread().len()), (array_model.len(), buffer_model.len()));
        assert!(
            array.last() == array_model.last() && buffer.unread().first() == buffer_model.front()
        );
    }
    assert!(array.as_slice() == array_model && buffer.unread().iter().eq(&buffer_model));
}
