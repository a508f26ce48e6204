//! The arithmetic of the arena: where an allocation is placed, which chunk serves it, how large new
//! chunks are, and how much memory a reset keeps.
//!
//! The functions compute only with integers, and the module contains no unsafe code. It can
//! therefore be tested and fuzzed by itself (`fuzz/fuzz_targets/layout.rs`). The modules with
//! unsafe code act on the results of these functions.
//!
//! # The bound on waste
//! The tail of a chunk is its unused end. All tails that the cursor has left behind are together
//! less than an eighth of the reserved memory, whatever the sizes of the allocations:
//!
//! - The cursor leaves a chunk only for an allocation that does not fit into the chunk's tail. The
//!   tail is therefore smaller than this allocation.
//! - The cursor moves to the next chunk only if the allocation takes at most an eighth of that
//!   chunk ([`place`]). The tail is therefore smaller than an eighth of the next chunk.
//!
//! Padding before aligned allocations is not included, because it counts as a part of the
//! allocation. It is always smaller than the allocation's alignment.
#![forbid(unsafe_code)]

use core::alloc::Layout;

/// The alignment in bytes of each chunk of an arena, and of the first byte after the chunk's
/// header. On common systems, malloc aligns every block to it anyway.
pub const CHUNK_ALIGN: usize = 16;

/// The size in bytes of a chunk's header. The header stores the links to the neighbouring chunks,
/// the size of the chunk, and the sizes of the allocation in a dedicated chunk.
pub const HEADER: usize = 32;

/// The number of bytes by which a chunk is smaller than its nominal size. This leaves space for the
/// allocator's own header. Otherwise the header would push the chunk into the allocator's next size
/// class, or above glibc's mmap threshold (128 KiB).
pub const ALLOCATOR_OVERHEAD: usize = 32;

/// The default nominal size in bytes of an arena's first chunk. The arena crate `bumpalo` has the
/// same default.
pub const DEFAULT_FIRST_CHUNK: usize = 512;

/// The default maximum of the nominal size in bytes to which an arena's chunks grow by doubling.
/// Larger chunks could leave more memory unused and would hardly be faster: the call of malloc for
/// a chunk of 128 KiB costs far less than the page faults when the chunk is first used.
pub const DEFAULT_MAX_CHUNK: usize = 128 * 1024;

/// The smallest nominal size in bytes of an arena's chunk: a header and a few words.
pub const MIN_CHUNK: usize = 128;

/// The largest nominal size in bytes of an arena's chunk. It is small enough that the sum of a few
/// chunk sizes never overflows.
pub const MAX_CHUNK: usize = 1 << (usize::BITS - 4);

/// The divisor that limits the size of an allocation in a shared chunk. An allocation moves the
/// cursor to the next chunk only if it takes at most an eighth of that chunk.
const EIGHTH: usize = 8;

/// The size in bytes up to which the unused end of a chunk (its tail) is not worth keeping. When a
/// small allocation does not fit into such a tail, the arena abandons the tail and enters the next
/// chunk. Keeping a tail for smaller allocations costs a malloc, because the allocation that does
/// not fit then needs a chunk of its own.
const SCRAP: usize = 512;

/// The divisor that defines when the unused end of a chunk (its tail) is small compared with the
/// next chunk. When a small allocation does not fit into a tail of at most `1 / SCRAP_SHARE` of the
/// next chunk, the arena abandons the tail and enters that chunk.
const SCRAP_SHARE: usize = 256;

/// The maximum number of allocations that get chunks of their own in order to keep the unused end
/// of the current chunk for smaller allocations. The next allocation that does not fit moves the
/// cursor to the next chunk.
const DEDICATED_PER_TAIL: usize = 16;

/// The divisor by which an arena's high-water mark decays: the mark falls by an eighth at each
/// reset if less memory was used. A burst of ten times the usual size is forgotten after 18 resets.
const DECAY: usize = 8;

/// The divisor that limits the waste in a reused dedicated chunk. A chunk is reused for an
/// allocation of `n` bytes only if it has at most about `n + n / SLACK` bytes.
const SLACK: usize = 8;

/// The start and the end address of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The address of the allocation's first byte, a multiple of its alignment.
    pub start: usize,
    /// The end address of the allocation, which becomes the arena's new cursor.
    pub end: usize,
}

/// Finds the place for an allocation of `layout` between the addresses `cursor` and `end` of one
/// chunk, where `cursor <= end`. Returns `None` if it does not fit.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_wrap)] // the comparison relies on wrapping
pub const fn fit(cursor: usize, end: usize, layout: Layout) -> Option<Fit> {
    let mask = layout.align() - 1;
    let start = cursor.wrapping_add(mask) & !mask;
    let new = start.wrapping_add(layout.size());
    // One signed comparison is enough: `Layout` guarantees that `size + align - 1` is at most
    // `isize::MAX`, so the new cursor is at most that far beyond `end`, and the difference keeps
    // its sign even if the address wraps.
    if (end.wrapping_sub(new) as isize) < 0 { None } else { Some(Fit { start, end: new }) }
}

/// Finds the place for a value or a slice between the addresses `cursor` and `end` of one chunk.
/// Returns `None` if it does not fit. This function is faster than [`fit`], but works only for
/// layouts whose size is a multiple of their alignment.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_wrap)] // as above
pub const fn fit_whole(cursor: usize, end: usize, layout: Layout) -> Option<Fit> {
    let mask = layout.align() - 1;
    debug_assert!(layout.size() & mask == 0);
    // Consecutive allocations wait only for the computation of the new cursor from the old one.
    // That takes two operations here, because the rounding comes after the addition, and three in
    // `fit`: 0.59 ns instead of 0.97 ns for 64 bytes (`const-layout` in `bench`).
    let new = cursor.wrapping_add(layout.size() + mask) & !mask;
    if (end.wrapping_sub(new) as isize) < 0 {
        return None;
    }
    Some(Fit { start: new.wrapping_sub(layout.size()), end: new })
}

/// Returns the number of bytes that an empty chunk needs for an allocation of `layout`, including
/// padding. The chunk's first byte is aligned to [`CHUNK_ALIGN`].
#[must_use]
pub const fn room_for(layout: Layout) -> usize {
    // `Layout` guarantees that size + align - 1 does not exceed `isize::MAX`.
    layout.size() + layout.align().saturating_sub(CHUNK_ALIGN)
}

/// Returns the size of a chunk that is just large enough for allocations of `room` bytes, or `None`
/// if the size exceeds `isize::MAX`.
#[must_use]
pub const fn exact_chunk(room: usize) -> Option<usize> {
    let Some(bytes) = room.checked_add(HEADER + CHUNK_ALIGN - 1) else { return None };
    let bytes = bytes & !(CHUNK_ALIGN - 1);
    if bytes > isize::MAX as usize - CHUNK_ALIGN { None } else { Some(bytes) }
}

/// The decision about an allocation that does not fit into the arena's current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Abandon the unused end of the current chunk, and enter the next chunk.
    Next,
    /// Give the allocation a dedicated chunk, and stay in the current chunk.
    Dedicated,
}

/// Decides whether an allocation of `room` bytes moves the arena to the next chunk or gets a
/// dedicated chunk (a chunk of its own). The allocation does not fit into the `tail` bytes that are
/// left in the current chunk. The next chunk has `next` bytes. `dedicated` is the number of
/// allocations that got dedicated chunks since the arena entered the current chunk.
///
/// An allocation of more than an eighth of `next` gets a dedicated chunk. A smaller allocation also
/// gets one if the tail is worth keeping for still smaller ones, at most 16 times for each chunk.
#[must_use]
pub const fn place(room: usize, tail: usize, next: usize, dedicated: usize) -> Overflow {
    let scrap = if next / SCRAP_SHARE > SCRAP { next / SCRAP_SHARE } else { SCRAP };
    if room > next / EIGHTH {
        Overflow::Dedicated
    } else if tail <= scrap || dedicated >= DEDICATED_PER_TAIL {
        Overflow::Next
    } else {
        Overflow::Dedicated
    }
}

/// Returns true if a dedicated chunk of `capacity` bytes can be reused for an allocation of `room`
/// bytes, with a waste of at most an eighth of `room`.
#[must_use]
pub const fn suits(capacity: usize, room: usize) -> bool {
    capacity >= room && capacity - room <= room / SLACK + CHUNK_ALIGN
}

/// Returns true if the sizes of two allocations, `first` and `room` bytes, differ by at most an
/// eighth. A dedicated chunk that has grown with the first allocation is then suitable for the
/// second, which will probably grow as much.
#[must_use]
pub const fn is_alike(first: usize, room: usize) -> bool {
    first.abs_diff(room) <= room / SLACK + CHUNK_ALIGN
}

/// Returns the capacity that a dedicated chunk (a chunk for one large allocation) keeps when it is
/// reused for another allocation. If the last allocation used almost all of the chunk's `capacity`,
/// the chunk keeps it. Otherwise the capacity shrinks by at most an eighth, but not below the
/// `used` bytes of the last allocation and the `needed` bytes of the next.
#[must_use]
pub const fn kept_capacity(capacity: usize, used: usize, needed: usize) -> usize {
    let least = if used > needed { used } else { needed };
    if least >= capacity || suits(capacity, least) {
        return capacity;
    }
    let faded = decayed(capacity, least);
    let rounded = match faded.checked_next_multiple_of(CHUNK_ALIGN) {
        Some(rounded) => rounded,
        None => capacity,
    };
    if rounded < capacity { rounded } else { capacity }
}

/// Returns the new high-water mark after `used` bytes were used between two resets: `used`, or
/// seven eighths of the old `mark` if that is more.
#[must_use]
pub const fn decayed(mark: usize, used: usize) -> usize {
    let faded = mark - mark.div_ceil(DECAY);
    if used > faded { used } else { faded }
}

/// Returns true if the last of an arena's shared chunks can be freed. It can if the chunks before
/// it, which have `rest` bytes in all, already reach `mark`, the high-water mark (the memory that
/// was recently needed). The first chunk is never freed.
#[must_use]
pub const fn is_surplus(rest: usize, mark: usize) -> bool {
    rest > 0 && rest >= mark
}

/// Returns true if the last of the dedicated chunks that are kept for reuse can be freed. It can if
/// at least half of its `size` bytes are above `mark`, the high-water mark (the memory that was
/// recently needed). `rest` is the total size of the chunks before it.
#[must_use]
pub const fn is_surplus_dedicated(rest: usize, size: usize, mark: usize) -> bool {
    rest.saturating_add(size / 2) >= mark
}

/// The growth of an arena's chunks: the first chunk has `first` bytes, and each further chunk has
/// twice as many, up to `max` bytes.
///
/// The sizes are nominal: slightly less is requested from the allocator, and a chunk's header takes
/// a few words of that.
///
/// ```
/// use rookery_arena::Growth;
///
/// let growth = Growth::new(4096, 65_536);
/// assert_eq!((growth.first(), growth.max()), (4096, 65_536));
/// assert_eq!(Growth::fixed(32_768), Growth::new(32_768, 32_768));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    first: usize,
    max: usize,
}

impl Growth {
    /// Returns a growth whose chunk sizes double from `first` to `max` bytes. `first` is raised to
    /// 128 bytes, rounded up to a multiple of 16 and limited to a sixteenth of the address space.
    /// If `max` is below `first`, all chunks have `first` bytes.
    #[must_use]
    pub const fn new(first: usize, max: usize) -> Growth {
        let first = Growth::nominal(first);
        let max = Growth::nominal(max);
        Growth { first, max: if max < first { first } else { max } }
    }

    /// Returns a growth in which all chunks have `size` bytes.
    #[must_use]
    pub const fn fixed(size: usize) -> Growth {
        Growth::new(size, size)
    }

    /// Returns the nominal size in bytes of an arena's first chunk.
    #[must_use]
    pub const fn first(self) -> usize {
        self.first
    }

    /// Returns the nominal size in bytes at which an arena's chunks stop doubling.
    #[must_use]
    pub const fn max(self) -> usize {
        self.max
    }

    /// Returns the nominal size of the chunk that follows a chunk of `nominal` bytes: twice as
    /// much, up to the maximum.
    #[must_use]
    pub const fn after(self, nominal: usize) -> usize {
        let doubled = nominal.saturating_mul(2);
        if doubled > self.max {
            self.max
        } else if doubled < self.first {
            self.first
        } else {
            doubled
        }
    }

    /// Returns the number of bytes to request from the global allocator for a chunk of `nominal`
    /// bytes. A nominal size of less than 128 bytes counts as 128 bytes.
    #[must_use]
    pub const fn asked(nominal: usize) -> usize {
        let nominal = if nominal < MIN_CHUNK { MIN_CHUNK } else { nominal };
        nominal - ALLOCATOR_OVERHEAD
    }

    /// Returns the size in bytes of the largest allocation that can share a chunk with others. A
    /// larger allocation gets a chunk of its own, which does not influence the growth of the other
    /// chunks.
    #[must_use]
    pub const fn largest_shared(self) -> usize {
        (Growth::asked(self.max) - HEADER) / EIGHTH
    }

    const fn nominal(size: usize) -> usize {
        if size < MIN_CHUNK {
            MIN_CHUNK
        } else if size > MAX_CHUNK {
            MAX_CHUNK
        } else {
            (size + CHUNK_ALIGN - 1) & !(CHUNK_ALIGN - 1)
        }
    }
}

impl Default for Growth {
    /// Returns a growth whose chunk sizes double from [`DEFAULT_FIRST_CHUNK`] to
    /// [`DEFAULT_MAX_CHUNK`].
    fn default() -> Growth {
        Growth::new(DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK)
    }
}
