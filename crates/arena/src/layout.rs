//! The arithmetic of the arena: where an allocation fits, which chunk serves it, how chunks grow and what is kept.
//!
//! Everything here is a pure function of integers, without pointers and without unsafe code, so that it is tested and
//! fuzzed alone (`fuzz/fuzz_targets/arena/layout.rs`). The unsafe modules do what these functions say.
//!
//! # The bound on waste
//! The cursor leaves a chunk only towards a chunk at least eight times as large as the request that
//! did not fit ([`place`]), and what it leaves behind is smaller than that request. So every
//! abandoned tail is paid for by the chunk opened because of it: all tails together stay below an
//! eighth of what is reserved, whatever the sizes. Padding is not counted there: it is part of the
//! aligned request, and less than its alignment.
#![forbid(unsafe_code)]

use core::alloc::Layout;

/// Alignment of a chunk and of the first byte in it that can be handed out. What malloc gives without asking.
pub const CHUNK_ALIGN: usize = 16;

/// Bytes at the start of a chunk that hold its links, its size and what it served.
pub const HEADER: usize = 32;

/// What a chunk asks for less than its nominal size, so that the allocator's own header does not push it into the
/// next size class or over glibc's mmap threshold (128 KiB, which would cost a page per chunk).
pub const ALLOCATOR_OVERHEAD: usize = 32;

/// Nominal size of the first chunk of an arena made without a size: as bumpalo's, and small beside a large request.
pub const DEFAULT_FIRST_CHUNK: usize = 512;

/// Nominal size at which chunks stop to double. The unfilled last chunk costs at most this; past it a chunk costs
/// one malloc per 128 KiB handed out, which is far below the page faults of those 128 KiB.
pub const DEFAULT_MAX_CHUNK: usize = 128 * 1024;

/// The smallest nominal chunk: a header and a few words.
pub const MIN_CHUNK: usize = 128;

/// The largest nominal chunk, so that sums of a few chunk sizes never overflow.
pub const MAX_CHUNK: usize = 1 << (usize::BITS - 4);

/// A request for more than `capacity / EIGHTH` of the next chunk never moves the cursor.
const EIGHTH: usize = 8;

/// A tail of at most this, or of `capacity / SCRAP_SHARE` of the next chunk if that is more, is abandoned without a
/// second thought: keeping it for smaller requests is not worth one malloc.
const SCRAP: usize = 512;
const SCRAP_SHARE: usize = 256;

/// How many requests that might have moved the cursor go aside to save a larger tail. After that it is abandoned: a
/// run of equal requests, for which no tail is ever of use, pays for few chunks of its own.
const DEDICATED_PER_TAIL: usize = 16;

/// The high-water mark loses an eighth at each reset that stays below it: a burst ten times the usual is forgotten
/// after 18 resets.
const DECAY: usize = 8;

/// A side chunk is used again for a request of `n` bytes when it has at most `n + n / SLACK`.
const SLACK: usize = 8;

/// Where an allocation lies, as addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The first byte; a multiple of the alignment.
    pub start: usize,
    /// After the last byte: the cursor from now on.
    pub end: usize,
}

/// Fits `layout` between the addresses `cursor` and `end`, `cursor <= end`, of one object.
///
/// One signed comparison: `Layout` keeps `size + align - 1` at most `isize::MAX`, so the new cursor is at most that far
/// past `end`, and the difference keeps its sign also when the address wraps.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_wrap)] // wrapping is what the comparison is about
pub const fn fit(cursor: usize, end: usize, layout: Layout) -> Option<Fit> {
    let mask = layout.align() - 1;
    let start = cursor.wrapping_add(mask) & !mask;
    let new = start.wrapping_add(layout.size());
    if (end.wrapping_sub(new) as isize) < 0 { None } else { Some(Fit { start, end: new }) }
}

/// As [`fit`], for the layout of a type or a slice, whose size is a multiple of its alignment.
///
/// Consecutive allocations wait for nothing but the way from the old cursor to the new one. Rounding after the addition
/// makes that two operations where [`fit`] needs three: 0.59 ns instead of 0.97 for 64 bytes (`bench`'s
/// `const-layout`).
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

/// Bytes of an empty chunk that surely hold `layout`: its data start at a multiple of [`CHUNK_ALIGN`].
#[must_use]
pub const fn room_for(layout: Layout) -> usize {
    // `Layout` promises that size + align - 1 does not pass `isize::MAX`.
    layout.size() + layout.align().saturating_sub(CHUNK_ALIGN)
}

/// Bytes to ask the allocator for, for a chunk that holds `room` bytes and nothing else. `None` past `isize::MAX`.
#[must_use]
pub const fn exact_chunk(room: usize) -> Option<usize> {
    let Some(bytes) = room.checked_add(HEADER + CHUNK_ALIGN - 1) else { return None };
    let bytes = bytes & !(CHUNK_ALIGN - 1);
    if bytes > isize::MAX as usize - CHUNK_ALIGN { None } else { Some(bytes) }
}

/// What to do with a request that does not fit before the end of the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// Abandon the tail and go on to the next chunk.
    Next,
    /// Give the request a chunk of its own and leave the cursor where it is.
    Dedicated,
}

/// Decides where a request of `room` bytes goes when the current chunk has `tail` bytes left, fewer than `room`, and
/// the next one `next` bytes; `dedicated` requests went aside since the cursor last moved on.
///
/// A request over an eighth of `next` goes aside. A smaller one goes aside too while the tail is worth keeping for
/// smaller requests, at most 16 times per chunk.
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

/// Whether a side chunk kept for reuse, with `capacity` bytes, fits a request of `room` bytes: it
/// holds it and wastes at most an eighth of it.
#[must_use]
pub const fn suits(capacity: usize, room: usize) -> bool {
    capacity >= room && capacity - room <= room / SLACK + CHUNK_ALIGN
}

/// Whether a request of `room` bytes is like one of `first` bytes, from which it differs by at most
/// an eighth. A side chunk that grew for the one can then be expected to be needed as large for the
/// other.
#[must_use]
pub const fn is_alike(first: usize, room: usize) -> bool {
    first.abs_diff(room) <= room / SLACK + CHUNK_ALIGN
}

/// The capacity that a side chunk keeps when it is used again: all of it if the request it served
/// last used it, and an eighth less otherwise, but never less than `used` by that request or needed
/// by the next one.
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

/// The high-water mark after a period that used `used` bytes.
#[must_use]
pub const fn decayed(mark: usize, used: usize) -> usize {
    let faded = mark - mark.div_ceil(DECAY);
    if used > faded { used } else { faded }
}

/// Whether the last chunk of those the cursor walks can go: it is not the first, and those before it, `rest` bytes,
/// reach the high-water mark.
#[must_use]
pub const fn is_surplus(rest: usize, mark: usize) -> bool {
    rest > 0 && rest >= mark
}

/// Whether the last of the chunks kept for large requests can go: with those before it, `rest` bytes, it passes the
/// mark by half of its `size`.
#[must_use]
pub const fn is_surplus_dedicated(rest: usize, size: usize, mark: usize) -> bool {
    rest.saturating_add(size / 2) >= mark
}

/// How chunks grow: the first has `first` bytes, each further one twice the last, up to `max`.
///
/// Sizes are nominal: a chunk asks the allocator for a little less, and a few words of it are its header.
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
    /// Doubling from `first` to `max` bytes. `first` is raised to 128 bytes, rounded up to a multiple of 16 and
    /// lowered to a sixteenth of the address space; a `max` below `first` means `first`.
    #[must_use]
    pub const fn new(first: usize, max: usize) -> Growth {
        let first = Growth::nominal(first);
        let max = Growth::nominal(max);
        Growth { first, max: if max < first { first } else { max } }
    }

    /// ChunkSet of one size.
    #[must_use]
    pub const fn fixed(size: usize) -> Growth {
        Growth::new(size, size)
    }

    /// Nominal bytes of the first chunk.
    #[must_use]
    pub const fn first(self) -> usize {
        self.first
    }

    /// Nominal bytes at which chunks stop to double.
    #[must_use]
    pub const fn max(self) -> usize {
        self.max
    }

    /// The nominal size that follows `nominal`.
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

    /// Bytes to ask the allocator for, for a chunk of `nominal` bytes, or of 128 if that is more:
    /// no chunk is smaller.
    #[must_use]
    pub const fn asked(nominal: usize) -> usize {
        let nominal = if nominal < MIN_CHUNK { MIN_CHUNK } else { nominal };
        nominal - ALLOCATOR_OVERHEAD
    }

    /// The largest request that could ever move the cursor. A larger one says nothing about how chunks should grow.
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
    /// From [`DEFAULT_FIRST_CHUNK`] to [`DEFAULT_MAX_CHUNK`].
    fn default() -> Growth {
        Growth::new(DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK)
    }
}
