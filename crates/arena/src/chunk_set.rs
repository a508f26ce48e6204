//! The chunks of one arena: which one the cursor is in, which lie at the side, which wait for reuse.
//!
//! # Ground rules
//! - `main` is the chunks the cursor walks, in the order it walks them; `current` is in `main`, the chunks after it hold
//!   nothing. The cursor itself lives in the [`Arena`](crate::Arena), beside the end of the current chunk, and is handed
//!   to every method that needs it.
//! - `dedicated` holds one live request per chunk, `spare` holds nothing live.
//! - Only [`reset`](ChunkSet::reset) and [`release`](ChunkSet::release) make a chunk with live contents free or reusable;
//!   both are reached only through `&mut Arena`.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::chunk::{Chunk, ChunkList};
use crate::error::{AllocError, NO_LIMIT};
use crate::layout::{self, Growth, HEADER, Overflow};

/// All the state of an arena but its cursor.
pub(crate) struct ChunkSet {
    main: ChunkList,
    dedicated: ChunkList,
    spare: ChunkList,
    current: Option<Chunk>,
    growth: Growth,
    /// Nominal size of the next chunk to be made.
    target: usize,
    /// Bytes of the chunks before `current`, headers included.
    passed: usize,
    /// Bytes handed out in the chunks before `current`.
    filled: usize,
    /// Bytes handed out at the side.
    dedicated_len: usize,
    /// Requests put aside since the cursor last moved on, of those small enough to share a chunk one day: their number,
    misses: usize,
    /// and their bytes.
    pressure: usize,
    /// The most bytes to hold from the allocator.
    limit: usize,
    /// The decayed high-water marks of `main` (up to the cursor) and of `dedicated`, in bytes.
    main_mark: usize,
    dedicated_mark: usize,
    /// The largest length a past period ended with.
    peak: usize,
}

/// Where a request that missed the current chunk went.
pub(crate) enum Opened {
    /// The cursor enters this chunk; the request fits there.
    Chunk(Chunk),
    /// At the side, and this is its address. The cursor stays.
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

    /// Serves a request that is not empty and does not fit between `cursor` and the end of the current chunk.
    pub(crate) fn open(&mut self, cursor: usize, layout: Layout) -> Result<Opened, AllocError> {
        let room = layout::room_for(layout);
        let Some(current) = self.current else {
            // Nothing to abandon and nothing kept: `reset` enters the first chunk at once.
            return if room <= Growth::asked(self.target) - HEADER {
                self.extend(room, layout, cursor)
            } else {
                self.serve_dedicated(room, layout, None).map(Opened::Dedicated)
            };
        };
        // SAFETY: `current` is in `main`, which `self` holds.
        let (kept, tail) = unsafe { (current.next(), current.end().addr().get() - cursor) };
        let next = match kept {
            // SAFETY: `kept` is in `main`, which `self` holds.
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

    /// Grows the allocation at `start`, if it is the last one put aside, by growing its chunk. Its contents move along.
    /// `None`, and nothing changes, when it is another one or the limit or the allocator refuses.
    ///
    /// # Safety
    /// - `start` and `old` are a live allocation of this arena that nobody else refers to.
    /// - `new` has the alignment of `old` and is larger.
    pub(crate) unsafe fn grow_dedicated(
        &mut self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<u8>> {
        let chunk = self.dedicated.tail()?;
        // SAFETY: the tail is live and `self` holds its list.
        let (data, size) = unsafe { (chunk.data(), chunk.size()) };
        // An over-aligned request may not begin at the data, and would not survive a move.
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
            // SAFETY: the list has a tail, whose only contents are the allocation that the caller vouches for.
            unsafe { self.dedicated.resize_back(bytes)? }
        };
        self.dedicated_len += new.size() - old.size();
        // SAFETY: the chunk is live and `self` holds its list.
        unsafe { chunk.set_used(layout::room_for(new)) };
        // SAFETY: the chunk is live.
        Some(unsafe { chunk.data() })
    }

    /// Ends a period: every chunk holds nothing from now on, and memory over the decayed high-water marks is freed.
    /// Gives the chunk that the cursor enters.
    pub(crate) fn reset(&mut self, cursor: usize) -> Option<Chunk> {
        self.peak = self.peak.max(self.len(cursor));
        self.main_mark = layout::decayed(self.main_mark, self.position(cursor));
        self.dedicated_mark = layout::decayed(self.dedicated_mark, self.dedicated.bytes());
        // The latest used come first: they are looked at first and freed last.
        self.spare.prepend(&mut self.dedicated);
        let count = self.main.count();
        let (main_mark, dedicated_mark) = (self.main_mark, self.dedicated_mark);
        // SAFETY: `&mut Arena` is at hand, so nothing handed out is in use.
        unsafe {
            self.spare.trim(|rest, size| layout::is_surplus_dedicated(rest, size, dedicated_mark));
            self.main.trim(|rest, _| layout::is_surplus(rest, main_mark));
        }
        if self.main.count() < count {
            self.target = self.growth.first();
            // SAFETY: the tail is live and `self` holds its list.
            if let Some(size) = self.main.tail().map(|tail| unsafe { tail.size() }) {
                self.target = self.growth.after(size + layout::ALLOCATOR_OVERHEAD);
            }
        }
        (self.passed, self.filled, self.dedicated_len) = (0, 0, 0);
        (self.misses, self.pressure) = (0, 0);
        self.current = self.main.head();
        self.current
    }

    /// Frees everything and forgets the marks. The limit and the growth stay.
    pub(crate) fn release(&mut self) {
        let limit = self.limit;
        *self = ChunkSet::new(self.growth);
        self.limit = limit;
    }

    /// The peak, which starts again with what is in use now: after a reset, with nothing.
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

    /// Bytes handed out since the last reset.
    pub(crate) fn len(&self, cursor: usize) -> usize {
        self.filled + self.in_current(cursor) + self.dedicated_len
    }

    /// Bytes held from the allocator, headers included.
    pub(crate) fn capacity(&self) -> usize {
        self.main.bytes() + self.dedicated.bytes() + self.spare.bytes()
    }

    pub(crate) fn peak(&self, cursor: usize) -> usize {
        self.peak.max(self.len(cursor))
    }

    /// The decayed high-water mark of everything, as of now.
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

    /// Bytes of `main` up to the cursor, headers and abandoned tails included: what the same requests need again.
    fn position(&self, cursor: usize) -> usize {
        self.passed + self.current.map_or(0, |_| HEADER) + self.in_current(cursor)
    }

    /// Moves on to `chunk`, the one after the current.
    fn enter(&mut self, chunk: Chunk, cursor: usize) -> Opened {
        self.filled += self.in_current(cursor);
        // SAFETY: `current` is in `main`, which `self` holds.
        self.passed += self.current.map_or(0, |current| unsafe { current.size() });
        (self.misses, self.pressure) = (0, 0);
        self.current = Some(chunk);
        Opened::Chunk(chunk)
    }

    /// Adds a chunk for at least `room` bytes and enters it: of the target size, or of what the limit leaves, or, when
    /// the allocator refuses that, just large enough.
    fn extend(&mut self, room: usize, layout: Layout, cursor: usize) -> Result<Opened, AllocError> {
        let exact = layout::exact_chunk(room).ok_or(AllocError::too_large())?;
        let asked = Growth::asked(self.target);
        let allowed = self.allowance(asked) & !(layout::CHUNK_ALIGN - 1);
        if exact > allowed {
            return Err(AllocError::over_limit(layout.size(), self.limit));
        }
        let chunk = Chunk::allocate(asked.min(allowed)).or_else(|| Chunk::allocate(exact));
        let chunk = chunk.ok_or(AllocError::exhausted(layout.size()))?;
        // SAFETY: just made.
        unsafe { self.main.push_back(chunk) };
        self.target = self.growth.after(self.target);
        Ok(self.enter(chunk, cursor))
    }

    /// Gives a request a chunk of its own: one kept from before that suits it, or a new one just large enough. `kept` is
    /// the chunk that the cursor would enter next.
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
                // The new one takes the place of kept ones that did not suit, so that both together stay at the mark.
                let (held, mark) = (self.dedicated.bytes() + bytes, self.dedicated_mark);
                // SAFETY: spare chunks hold nothing.
                unsafe { self.spare.trim(|rest, size| held + rest + size > mark) };
                let chunk = Chunk::allocate(bytes).ok_or(AllocError::exhausted(layout.size()))?;
                // SAFETY: just made.
                unsafe { self.dedicated.push_back(chunk) };
                chunk
            }
        };
        // SAFETY: the chunk is in `dedicated`, which `self` holds.
        unsafe { chunk.serve(room) };
        self.dedicated_len += layout.size();
        if room <= self.growth.largest_shared() {
            self.add_pressure(room, kept);
        }
        // SAFETY: the chunk is live.
        let (data, end) = unsafe { (chunk.data(), chunk.end()) };
        let fit = layout::fit(data.addr().get(), end.addr().get(), layout)
            .expect("room_for bounds the padding");
        // SAFETY: `fit` lies between the data and the end of the chunk.
        Ok(unsafe { data.add(fit.start - data.addr().get()) })
    }

    /// Counts `room` bytes put aside for want of a larger chunk. When they would have filled the
    /// next chunk, that one gives way to a larger, if there will be one: each doubling is paid for
    /// by a handful of requests, not by all that follow.
    fn add_pressure(&mut self, room: usize, kept: Option<Chunk>) {
        self.misses += 1;
        self.pressure += room;
        match kept {
            // SAFETY: `kept` is in `main`, which `self` holds.
            Some(kept) if self.pressure >= unsafe { kept.size() } => {
                self.pressure = 0;
                // SAFETY: `kept` and the chunk after it are in `main`, which `self` holds.
                let (size, next) = unsafe { (kept.size(), kept.next().map(|next| next.size())) };
                if next.unwrap_or(Growth::asked(self.target)) > size {
                    // SAFETY: `kept` is in `main`, after `current`, and holds nothing.
                    unsafe { self.main.remove(kept) };
                    // SAFETY: just taken out of `main`.
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

    /// Moves the first of the first few spare chunks that may serve `room` bytes to the side. They
    /// are in the order of their last use, so that each request of a period that repeats itself
    /// finds the chunk it had before.
    fn reuse_spare(&mut self, room: usize) -> Option<Chunk> {
        let mut next = self.spare.head();
        for _ in 0..SPARES_LOOKED_AT {
            let chunk = next?;
            // SAFETY: the chunk is in `spare`, which `self` holds.
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
                // It was not needed as large as that, so it loses some, unless the allocator refuses.
                // SAFETY: the chunk is the last of `dedicated` and holds nothing.
                return Some(unsafe { self.dedicated.resize_back(kept + HEADER) }.unwrap_or(chunk));
            }
            // SAFETY: as above.
            next = unsafe { chunk.next() };
        }
        None
    }

    /// Moves a spare chunk to the side.
    ///
    /// # Safety
    /// The chunk is in `spare`.
    unsafe fn reuse(&mut self, chunk: Chunk) {
        // SAFETY: as the caller vouches, and it is in no list in between.
        unsafe {
            self.spare.remove(chunk);
            self.dedicated.push_back(chunk);
        }
    }

    /// Bytes the limit still allows. ChunkSet kept for reuse give way when `wanted` would not fit beside them.
    fn allowance(&mut self, wanted: usize) -> usize {
        if self.limit == NO_LIMIT {
            return usize::MAX;
        }
        if self.capacity().saturating_add(wanted) > self.limit {
            // SAFETY: spare chunks hold nothing.
            unsafe { self.spare.trim(|_, _| true) };
        }
        self.limit.saturating_sub(self.capacity())
    }
}

/// How many kept side chunks a request looks at: a repeated sequence finds its chunk first, and a list of thousands
/// must not make an allocation slow.
const SPARES_LOOKED_AT: usize = 8;
