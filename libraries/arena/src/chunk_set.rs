//! The chunks (blocks of memory) of one arena. There are three kinds:
//!
//! - A shared chunk contains many allocations. The arena's cursor moves through the shared chunks
//!   one after another.
//! - A dedicated chunk contains a single allocation.
//! - A spare chunk contains nothing, and is kept for reuse.
//!
//! # Ground rules
//! - `main` lists the shared chunks in the order in which the cursor moves through them. The cursor
//!   is in the chunk `current`. The chunks after `current` contain no allocations.
//! - The [`Arena`](crate::Arena) stores the cursor itself and the end of the current chunk. It
//!   passes the cursor to each method that needs it.
//! - Each chunk in `dedicated` contains one live allocation. The chunks in `spare` contain none.
//! - Only [`reset`](ChunkSet::reset) and [`release`](ChunkSet::release) free or reuse a chunk that
//!   contains allocations. Both need `&mut Arena`.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::chunk::{Chunk, ChunkList};
use crate::error::{AllocError, NO_LIMIT};
use crate::layout::{self, Growth, HEADER, Overflow};

/// The chunks of an arena and the counters that control them. The arena itself stores only its
/// cursor and the end of the current chunk.
pub(crate) struct ChunkSet {
    main: ChunkList,
    dedicated: ChunkList,
    spare: ChunkList,
    current: Option<Chunk>,
    growth: Growth,
    /// The nominal size in bytes of the next shared chunk (a chunk for many small allocations) that
    /// the arena allocates.
    target: usize,
    /// The total size in bytes of the chunks before `current`, the chunk that the cursor is in.
    /// Their headers are included.
    passed: usize,
    /// The allocated bytes in the chunks before `current`, the chunk that the cursor is in.
    filled: usize,
    /// The allocated bytes in dedicated chunks (chunks for one large allocation each).
    dedicated_len: usize,
    /// The number of allocations that got dedicated chunks since the cursor entered the current
    /// chunk. Allocations that are too large for any shared chunk do not count.
    misses: usize,
    /// The total size in bytes of recent allocations that got dedicated chunks although larger
    /// shared chunks could contain them. When this sum reaches the size of the next shared chunk, a
    /// larger chunk replaces that chunk, and the sum restarts at zero. It also restarts when the
    /// cursor enters another chunk.
    pressure: usize,
    /// The maximum number of bytes that the arena may hold from the global allocator.
    limit: usize,
    /// The high-water mark of the shared chunks: the number of their bytes that were recently
    /// needed between two resets.
    main_mark: usize,
    /// The high-water mark of the dedicated chunks: the number of their bytes that were recently
    /// needed between two resets.
    dedicated_mark: usize,
    /// The largest number of bytes that were in use at any earlier reset.
    peak: usize,
}

/// The chunk that serves an allocation which did not fit into the current chunk.
pub(crate) enum Opened {
    /// The next shared chunk. The cursor enters this chunk, and the allocation fits into it.
    Chunk(Chunk),
    /// The address of the allocation in a chunk dedicated to it. The cursor does not move.
    Dedicated(NonNull<u8>),
}

impl ChunkSet {
    pub(crate) const fn new(growth: Growth) -> ChunkSet {
        ChunkSet {
            main: ChunkList::new(),
            dedicated: ChunkList::new(),
            spare: ChunkList::new(),
            current: None,
            growth,
            target: growth.first(),
            passed: 0,
            filled: 0,
            dedicated_len: 0,
            misses: 0,
            pressure: 0,
            limit: NO_LIMIT,
            main_mark: 0,
            dedicated_mark: 0,
            peak: 0,
        }
    }

    /// Opens a chunk for a non-empty allocation that does not fit between `cursor` and the end of
    /// the current chunk. The result is either the next shared chunk, or a dedicated chunk (a chunk
    /// of its own) that already contains the allocation.
    pub(crate) fn open(&mut self, cursor: usize, layout: Layout) -> Result<Opened, AllocError> {
        let room = layout::room_for(layout);
        let Some(current) = self.current else {
            // There is no chunk to leave and none is kept, because `reset` enters the first chunk
            // at once.
            return if room <= Growth::asked(self.target) - HEADER {
                self.extend(room, layout, cursor)
            } else {
                self.serve_dedicated(room, layout, None).map(Opened::Dedicated)
            };
        };
        // SAFETY: `current` is in `main`, which `self` owns.
        let (kept, tail) = unsafe { (current.next(), current.end().addr().get() - cursor) };
        let next = match kept {
            // SAFETY: `kept` is in `main`, which `self` owns.
            Some(kept) => unsafe { kept.size() },
            None => Growth::asked(self.target),
        } - HEADER;
        match (layout::place(room, tail, next, self.misses), kept) {
            (Overflow::Dedicated, _) => {
                self.serve_dedicated(room, layout, kept).map(Opened::Dedicated)
            }
            (Overflow::Next, Some(kept)) => Ok(self.enter(kept, cursor)),
            (Overflow::Next, None) => self.extend(room, layout, cursor),
        }
    }

    /// Enlarges the allocation at `start` by resizing its dedicated chunk (a chunk for one large
    /// allocation). Returns the address of the enlarged allocation, which may have moved with its
    /// contents. Returns `None` and changes nothing in these cases:
    /// - The allocation is not in the most recent dedicated chunk.
    /// - Its alignment exceeds 16.
    /// - The enlarged chunk would exceed the arena's limit, or the allocator fails.
    ///
    /// # Safety
    /// - `start` and `old` describe a live allocation of this arena to which nothing else refers.
    /// - `new` has the alignment of `old` and is larger.
    pub(crate) unsafe fn grow_dedicated(
        &mut self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<u8>> {
        let chunk = self.dedicated.tail()?;
        // SAFETY: the tail is live, and `self` owns its list.
        let (data, size) = unsafe { (chunk.data(), chunk.size()) };
        // An over-aligned request may not begin at the first byte, and its alignment would not
        // survive a move.
        if data.addr() != start.addr() || new.align() > layout::CHUNK_ALIGN {
            return None;
        }
        let bytes = layout::exact_chunk(layout::room_for(new))?;
        let chunk = if bytes <= size {
            chunk
        } else {
            let held = self.capacity() - size;
            if bytes > self.limit.saturating_sub(held) {
                return None;
            }
            // SAFETY: the list has a tail, which contains only the allocation of the caller.
            unsafe { self.dedicated.resize_back(bytes)? }
        };
        // An allocation that its owner regards as smaller than it is (`Allocator::shrink`) grows
        // again without more memory.
        self.dedicated_len =
            (self.dedicated_len + (new.size() - old.size())).min(self.dedicated.bytes());
        // SAFETY: the chunk is live, and `self` owns its list.
        unsafe { chunk.set_used(layout::room_for(new)) };
        // SAFETY: the chunk is live.
        Some(unsafe { chunk.data() })
    }

    /// Frees all allocations of the arena. Keeps its chunks for reuse, except those above the
    /// high-water marks (the memory that was recently needed), which are freed. `cursor` is the
    /// address of the next allocation before the reset. Returns the first shared chunk, in which
    /// the arena continues, or `None` if it has none.
    pub(crate) fn reset(&mut self, cursor: usize) -> Option<Chunk> {
        self.peak = self.peak.max(self.len(cursor));
        self.main_mark = layout::decayed(self.main_mark, self.position(cursor));
        self.dedicated_mark = layout::decayed(self.dedicated_mark, self.dedicated.bytes());
        // The most recently used chunks come first, so that they are tried first and freed last.
        self.spare.prepend(&mut self.dedicated);
        let count = self.main.count();
        let (main_mark, dedicated_mark) = (self.main_mark, self.dedicated_mark);
        // SAFETY: the caller has `&mut Arena`, so no allocation is in use.
        unsafe {
            self.spare.trim(|rest, size| layout::is_surplus_dedicated(rest, size, dedicated_mark));
            self.main.trim(|rest, _| layout::is_surplus(rest, main_mark));
        }
        if self.main.count() < count {
            self.target = self.growth.first();
            // SAFETY: the tail is live, and `self` owns its list.
            if let Some(size) = self.main.tail().map(|tail| unsafe { tail.size() }) {
                self.target = self.growth.after(size + layout::ALLOCATOR_OVERHEAD);
            }
        }
        (self.passed, self.filled, self.dedicated_len) = (0, 0, 0);
        (self.misses, self.pressure) = (0, 0);
        self.current = self.main.head();
        self.current
    }

    /// Frees all chunks of the arena and clears the high-water marks. The limit and the growth stay
    /// the same.
    pub(crate) fn release(&mut self) {
        let limit = self.limit;
        *self = ChunkSet::new(self.growth);
        self.limit = limit;
    }

    /// Returns the arena's peak (the largest number of bytes that were allocated at any time), and
    /// lowers the peak to the number of bytes that are allocated now (0 after a reset). `cursor` is
    /// the address of the next allocation.
    pub(crate) fn take_peak(&mut self, cursor: usize) -> usize {
        let peak = self.peak(cursor);
        self.peak = 0;
        peak
    }

    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn growth(&self) -> Growth {
        self.growth
    }

    /// Returns the number of bytes that were allocated from the arena since the last reset.
    /// `cursor` is the address of the next allocation.
    pub(crate) fn len(&self, cursor: usize) -> usize {
        self.filled + self.in_current(cursor) + self.dedicated_len
    }

    /// Returns the number of bytes that the arena holds from the global allocator, with the headers
    /// of the chunks.
    pub(crate) fn capacity(&self) -> usize {
        self.main.bytes() + self.dedicated.bytes() + self.spare.bytes()
    }

    pub(crate) fn peak(&self, cursor: usize) -> usize {
        self.peak.max(self.len(cursor))
    }

    /// Returns the arena's high-water mark in bytes: the bytes that it recently needed between two
    /// resets, including what it uses now. `cursor` is the address of the next allocation.
    pub(crate) fn mark(&self, cursor: usize) -> usize {
        self.main_mark.max(self.position(cursor)) + self.dedicated_mark.max(self.dedicated.bytes())
    }

    pub(crate) fn count(&self) -> usize {
        self.main.count() + self.dedicated.count() + self.spare.count()
    }

    pub(crate) fn dedicated_count(&self) -> usize {
        self.dedicated.count()
    }

    fn in_current(&self, cursor: usize) -> usize {
        // SAFETY: `current` is live.
        self.current.map_or(0, |chunk| cursor - unsafe { chunk.data() }.addr().get())
    }

    /// Returns the number of bytes from the start of the first shared chunk to `cursor`, the
    /// address of the next allocation. Headers and the unused ends of chunks are included, because
    /// repeating the same allocations would need them again.
    fn position(&self, cursor: usize) -> usize {
        self.passed + self.current.map_or(0, |_| HEADER) + self.in_current(cursor)
    }

    /// Makes `chunk` the current chunk. It follows the old current chunk, in which `cursor` is the
    /// address of the next allocation.
    fn enter(&mut self, chunk: Chunk, cursor: usize) -> Opened {
        self.filled += self.in_current(cursor);
        // SAFETY: `current` is in `main`, which `self` owns.
        self.passed += self.current.map_or(0, |current| unsafe { current.size() });
        (self.misses, self.pressure) = (0, 0);
        self.current = Some(chunk);
        Opened::Chunk(chunk)
    }

    /// Allocates a shared chunk with space for at least `room` bytes, and makes it the current
    /// chunk. The chunk has the size `target`, or less if the arena's limit allows less. If the
    /// allocator cannot provide this size, the chunk is just large enough for `room` bytes.
    /// `layout` is the requested allocation, whose size an error reports. `cursor` is the address
    /// of the next allocation in the previous chunk.
    fn extend(&mut self, room: usize, layout: Layout, cursor: usize) -> Result<Opened, AllocError> {
        let exact = layout::exact_chunk(room).ok_or(AllocError::too_large())?;
        let asked = Growth::asked(self.target);
        let allowed = self.allowance(asked) & !(layout::CHUNK_ALIGN - 1);
        if exact > allowed {
            return Err(AllocError::over_limit(layout.size(), self.limit));
        }
        let chunk = Chunk::allocate(asked.min(allowed)).or_else(|| Chunk::allocate(exact));
        let chunk = chunk.ok_or(AllocError::exhausted(layout.size()))?;
        // SAFETY: the chunk was just made.
        unsafe { self.main.push_back(chunk) };
        self.target = self.growth.after(self.target);
        Ok(self.enter(chunk, cursor))
    }

    /// Allocates memory for `layout` in a dedicated chunk (a chunk of its own), and returns its
    /// address. Uses a chunk kept for reuse if one fits well, and otherwise makes a chunk that is
    /// just large enough. `room` is the needed space with padding. `kept` is the next shared chunk,
    /// if there is one already.
    fn serve_dedicated(
        &mut self,
        room: usize,
        layout: Layout,
        kept: Option<Chunk>,
    ) -> Result<NonNull<u8>, AllocError> {
        let chunk = match self.reuse_spare(room) {
            Some(chunk) => chunk,
            None => {
                let bytes = layout::exact_chunk(room).ok_or(AllocError::too_large())?;
                if bytes > self.allowance(bytes) {
                    return Err(AllocError::over_limit(layout.size(), self.limit));
                }
                // The new chunk replaces kept ones that did not fit, so that all together stay
                // below the mark.
                let (held, mark) = (self.dedicated.bytes() + bytes, self.dedicated_mark);
                // SAFETY: spare chunks hold no allocation.
                unsafe { self.spare.trim(|rest, size| held + rest + size > mark) };
                let chunk = Chunk::allocate(bytes).ok_or(AllocError::exhausted(layout.size()))?;
                // SAFETY: the chunk was just made.
                unsafe { self.dedicated.push_back(chunk) };
                chunk
            }
        };
        // SAFETY: the chunk is in `dedicated`, which `self` owns.
        unsafe { chunk.serve(room) };
        self.dedicated_len += layout.size();
        if room <= self.growth.largest_shared() {
            self.add_pressure(room, kept);
        }
        // SAFETY: the chunk is live.
        let (data, end) = unsafe { (chunk.data(), chunk.end()) };
        let fit = layout::fit(data.addr().get(), end.addr().get(), layout)
            .expect("room_for bounds the padding");
        // SAFETY: `fit` is between the first byte and the end of the chunk.
        Ok(unsafe { data.add(fit.start - data.addr().get()) })
    }

    /// Counts an allocation of `room` bytes that got a dedicated chunk although a larger shared
    /// chunk could contain it. When the counted bytes would have filled the next shared chunk, a
    /// larger one replaces it, up to the maximum size. `kept` is the next shared chunk, if there is
    /// one already.
    fn add_pressure(&mut self, room: usize, kept: Option<Chunk>) {
        self.misses += 1;
        self.pressure += room;
        match kept {
            // SAFETY: `kept` is in `main`, which `self` owns.
            Some(kept) if self.pressure >= unsafe { kept.size() } => {
                self.pressure = 0;
                // SAFETY: `kept` and the chunk after it are in `main`, which `self` owns.
                let (size, next) = unsafe { (kept.size(), kept.next().map(|next| next.size())) };
                if next.unwrap_or(Growth::asked(self.target)) > size {
                    // SAFETY: `kept` is in `main`, after `current`, and holds no allocation.
                    unsafe { self.main.remove(kept) };
                    // SAFETY: the chunk was just removed from `main`.
                    unsafe { self.spare.push_back(kept) };
                }
            }
            None if self.pressure >= self.target => {
                self.target = self.growth.after(self.target);
                self.pressure = 0;
            }
            _ => {}
        }
    }

    /// Reuses a spare chunk (a dedicated chunk kept for reuse) for an allocation of `room` bytes.
    /// Returns the first chunk that fits among the first few spare chunks, or `None`. The spare
    /// chunks are in the order in which they were last used, so that the same allocations after a
    /// reset find their former chunks.
    fn reuse_spare(&mut self, room: usize) -> Option<Chunk> {
        let mut next = self.spare.head();
        for _ in 0..SPARES_LOOKED_AT {
            let chunk = next?;
            // SAFETY: the chunk is in `spare`, which `self` owns.
            let (capacity, (first, used)) = unsafe { (chunk.size() - HEADER, chunk.served()) };
            if layout::suits(capacity, room) {
                // SAFETY: as above.
                unsafe { self.reuse(chunk) };
                return Some(chunk);
            }
            if capacity >= room && layout::is_alike(first, room) {
                // SAFETY: as above.
                unsafe { self.reuse(chunk) };
                let kept = layout::kept_capacity(capacity, used, room);
                if kept == capacity {
                    return Some(chunk);
                }
                // The chunk was larger than needed, so it is shrunk, unless the allocator fails.
                // SAFETY: the chunk is the last of `dedicated` and holds no allocation.
                return Some(unsafe { self.dedicated.resize_back(kept + HEADER) }.unwrap_or(chunk));
            }
            // SAFETY: as above.
            next = unsafe { chunk.next() };
        }
        None
    }

    /// Moves a chunk from the spare chunks to the dedicated ones.
    ///
    /// # Safety
    /// The chunk is in `spare`.
    unsafe fn reuse(&mut self, chunk: Chunk) {
        // SAFETY: the caller guarantees it, and the chunk is in no list in between.
        unsafe {
            self.spare.remove(chunk);
            self.dedicated.push_back(chunk);
        }
    }

    /// Returns the number of bytes that the arena's limit still allows. Frees all chunks kept for
    /// reuse if an allocation of `wanted` bytes would otherwise exceed the limit.
    fn allowance(&mut self, wanted: usize) -> usize {
        if self.limit == NO_LIMIT {
            return usize::MAX;
        }
        if self.capacity().saturating_add(wanted) > self.limit {
            // SAFETY: spare chunks hold no allocation.
            unsafe { self.spare.trim(|_, _| true) };
        }
        self.limit.saturating_sub(self.capacity())
    }
}

/// The maximum number of spare dedicated chunks that are tried for an allocation. It keeps
/// allocations fast even if thousands of chunks are spare.
const SPARES_LOOKED_AT: usize = 8;
