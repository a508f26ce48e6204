//! The arithmetic of the arena: the place of an allocation, the chunk that serves it, the growth of
//! chunks, and the memory that is kept.
//!
//! Everything here is a pure function of integers, without pointers and without unsafe code, so
//! that it can be tested and fuzzed by itself (`fuzz/fuzz_targets/arena/layout.rs`). The modules
//! with unsafe code follow these functions.
//!
//! # The bound on waste
//! The cursor leaves a chunk only for a chunk at least eight times as large as the request that did
//! not fit ([`place`]), and the abandoned tail is smaller than that request. Each tail is therefore
//! at most an eighth of the chunk opened because of it, and all tails together are less than an
//! eighth of the reserved memory, whatever the sizes of the requests. Padding does not count: it is
//! part of the aligned request, and less than its alignment.
#![forbid(unsafe_code)]

use core::alloc::Layout;

/// The alignment of a chunk and of its first allocation, which malloc gives anyway.
pub const CHUNK_ALIGN: usize = 16;

/// Bytes of a chunk's header: its links, its size and the sizes of its request.
pub const HEADER: usize = 32;

/// The bytes by which a chunk is smaller than its nominal size, so that the allocator's own header
/// does not push it into the next size class, or above glibc's mmap threshold (128 KiB), where each
/// chunk would cost a page.
pub const ALLOCATOR_OVERHEAD: usize = 32;

/// The nominal size of the first chunk of an arena made without a size. It is that of bumpalo, and
/// small compared with a large request.
pub const DEFAULT_FIRST_CHUNK: usize = 512;

/// The nominal size at which chunks stop doubling. The unfilled last chunk wastes at most as much.
/// Above this size, one malloc for each 128 KiB costs far less than the page faults of those 128
/// KiB.
pub const DEFAULT_MAX_CHUNK: usize = 128 * 1024;

/// The smallest nominal size of a chunk: a header and a few words.
pub const MIN_CHUNK: usize = 128;

/// The largest nominal size of a chunk, so that sums of a few sizes never overflow.
pub const MAX_CHUNK: usize = 1 << (usize::BITS - 4);

/// A request of more than `capacity / EIGHTH` of the next chunk never moves the cursor.
const EIGHTH: usize = 8;

/// A tail of at most this size, or of `capacity / SCRAP_SHARE` of the next chunk if that is more,
/// is always abandoned. Keeping it for smaller requests is not worth one malloc.
const SCRAP: usize = 512;
const SCRAP_SHARE: usize = 256;

/// The number of requests that get dedicated chunks in order to keep a larger tail, which is
/// abandoned after that. A sequence of equal requests, for which no tail is of use, therefore costs
/// only a few dedicated chunks.
const DEDICATED_PER_TAIL: usize = 16;

/// The high-water mark loses an eighth at each reset after a period that used less. A burst of ten
/// times the usual size is forgotten after 18 resets.
const DECAY: usize = 8;

/// A dedicated chunk is used again for a request of `n` bytes if it has at most `n + n / SLACK`
/// bytes.
const SLACK: usize = 8;

/// The addresses of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The first byte, a multiple of the alignment.
    pub start: usize,
    /// The end, which is the new cursor.
    pub end: usize,
}

/// Places `layout` between the addresses `cursor` and `end` of one object, where `cursor <= end`.
///
/// One signed comparison is enough: `Layout` guarantees that `size + align - 1` is at most
/// `isize::MAX`, so the new cursor is at most that far beyond `end`, and the difference keeps its
/// sign even if the address wraps.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_wrap)] // the comparison relies on wrapping
pub const fn fit(cursor: usize, end: usize, layout: Layout) -> Option<Fit> {
    let mask = layout.align() - 1;
    let start = cursor.wrapping_add(mask) & !mask;
    let new = start.wrapping_add(layout.size());
    if (end.wrapping_sub(new) as isize) < 0 { None } else { Some(Fit { start, end: new }) }
}

/// Places the layout of a type or a slice, whose size is a multiple of its alignment.
///
/// Consecutive allocations depend only on the path from the old cursor to the new one. Rounding
/// after the addition makes that path two operations, and [`fit`] three: 0.59 ns instead of 0.97 ns
/// for 64 bytes (`bench`'s `const-layout`).
#[inline]
#[must_use]
#[allow(clippy::cast_possible_wrap)] // as above
pub const fn fit_whole(cursor: usize, end: usize, layout: Layout) -> Option<Fit> {
    let mask = layout.align() - 1;
    debug_assert!(layout.size() & mask == 0);
    let new = cursor.wrapping_add(layout.size() + mask) & !mask;
    if (end.wrapping_sub(new) as isize) < 0 {
        return None;
    }
    Some(Fit { start: new.wrapping_sub(layout.size()), end: new })
}

/// Returns the number of bytes of an empty chunk that are enough for `layout`. The first byte is
/// aligned to [`CHUNK_ALIGN`].
#[must_use]
pub const fn room_for(layout: Layout) -> usize {
    // `Layout` guarantees that size + align - 1 does not exceed `isize::MAX`.
    layout.size() + layout.align().saturating_sub(CHUNK_ALIGN)
}

/// Returns the size of a chunk that is just large enough for `room` bytes, or `None` if it exceeds
/// `isize::MAX`.
#[must_use]
pub const fn exact_chunk(room: usize) -> Option<usize> {
    let Some(bytes) = room.checked_add(HEADER + CHUNK_ALIGN - 1) else { return None };
    let bytes = bytes & !(CHUNK_ALIGN - 1);
    if bytes > isize::MAX as usize - CHUNK_ALIGN { None } else { Some(bytes) }
}

/// The decision about a request that does not fit into the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Abandon the tail and enter the next chunk.
    Next,
    /// Give the request a dedicated chunk and keep the cursor.
    Dedicated,
}

/// Decides about a request of `room` bytes, when the current chunk has only `tail` bytes left and
/// the next one `next` bytes. `dedicated` requests got dedicated chunks since the cursor entered
/// the current chunk.
///
/// A request of more than an eighth of `next` gets a dedicated chunk. So does a smaller request
/// while the tail is worth keeping for smaller ones, at most 16 times for each chunk.
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

/// Returns true if a kept dedicated chunk with `capacity` bytes fits a request of `room` bytes and
/// wastes at most an eighth of it.
#[must_use]
pub const fn suits(capacity: usize, room: usize) -> bool {
    capacity >= room && capacity - room <= room / SLACK + CHUNK_ALIGN
}

/// Returns true if a request of `room` bytes differs by at most an eighth from one of `first`
/// bytes. A dedicated chunk that has grown for one of them will probably be needed as large for the
/// other.
#[must_use]
pub const fn is_alike(first: usize, room: usize) -> bool {
    first.abs_diff(room) <= room / SLACK + CHUNK_ALIGN
}

/// Returns the capacity that a dedicated chunk keeps when it is used again: all of it if its last
/// request used it, and otherwise an eighth less, but at least `used` by the last request and
/// `needed` by the next.
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

/// Returns the high-water mark after a period that used `used` bytes.
#[must_use]
pub const fn decayed(mark: usize, used: usize) -> usize {
    let faded = mark - mark.div_ceil(DECAY);
    if used > faded { used } else { faded }
}

/// Returns true if the last chunk that the cursor walks can be freed, because the chunks before it,
/// `rest` bytes, reach the high-water mark. The first chunk stays.
#[must_use]
pub const fn is_surplus(rest: usize, mark: usize) -> bool {
    rest > 0 && rest >= mark
}

/// Returns true if the last kept dedicated chunk can be freed, because together with the chunks
/// before it, `rest` bytes, it exceeds the mark by at least half of its `size`.
#[must_use]
pub const fn is_surplus_dedicated(rest: usize, size: usize, mark: usize) -> bool {
    rest.saturating_add(size / 2) >= mark
}

/// The growth of chunks: the first has `first` bytes, and each further one twice as many, up to
/// `max`.
///
/// The sizes are nominal. A chunk requests a little less from the allocator, and its header takes a
/// few words.
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
    /// Returns a growth that doubles from `first` to `max` bytes. `first` is raised to 128 bytes,
    /// rounded up to a multiple of 16 and limited to a sixteenth of the address space. A `max`
    /// below `first` means `first`.
    #[must_use]
    pub const fn new(first: usize, max: usize) -> Growth {
        let first = Growth::nominal(first);
        let max = Growth::nominal(max);
        Growth { first, max: if max < first { first } else { max } }
    }

    /// Returns a growth with chunks of one size.
    #[must_use]
    pub const fn fixed(size: usize) -> Growth {
        Growth::new(size, size)
    }

    /// Returns the nominal size of the first chunk.
    #[must_use]
    pub const fn first(self) -> usize {
        self.first
    }

    /// Returns the nominal size at which chunks stop doubling.
    #[must_use]
    pub const fn max(self) -> usize {
        self.max
    }

    /// Returns the nominal size after `nominal`.
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

    /// Returns the number of bytes to request from the allocator for a chunk of `nominal` bytes,
    /// but at least for 128 bytes.
    #[must_use]
    pub const fn asked(nominal: usize) -> usize {
        let nominal = if nominal < MIN_CHUNK { MIN_CHUNK } else { nominal };
        nominal - ALLOCATOR_OVERHEAD
    }

    /// Returns the size of the largest request that can move the cursor. A larger request does not
    /// influence the growth.
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
    /// Doubles from [`DEFAULT_FIRST_CHUNK`] to [`DEFAULT_MAX_CHUNK`].
    fn default() -> Growth {
        Growth::new(DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK)
    }
}
