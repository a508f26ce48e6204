//! The arena for one thread: memory that is allocated by moving a cursor and freed all at once.

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::num::NonZero;
use core::ptr::{self, NonNull};

use crate::chunk::Chunk;
use crate::chunk_set::{ChunkSet, Opened};
use crate::error::{AllocError, NO_LIMIT};
use crate::layout::{self, DEFAULT_MAX_CHUNK, Fit, Growth};
use crate::typed::{array, dangling, typed_methods};

/// An arena for one thread: memory for values that live as long as one request. The arena allocates
/// by moving a cursor through chunks of memory, and frees everything at once.
///
/// An allocation that fits into the current chunk costs one comparison and one addition. The [crate
/// documentation](crate) says when to use an arena, and what an arena does not do (it never runs
/// `drop`).
///
/// ```
/// use rookery_arena::Arena;
///
/// let mut arena = Arena::new();
/// let name = arena.alloc_str("content-type");
/// let counts = arena.alloc_slice_fill(4, 0u32);
/// counts[1] = 7;
/// assert_eq!((&*name, &*counts), ("content-type", &[0, 7, 0, 0][..]));
/// arena.reset(); // `name` and `counts` are gone, their memory serves the next request
/// ```
///
/// # Cost
/// | methods | cost |
/// |---|---|
/// | `alloc_layout`, `alloc`, `alloc_uninit`, `alloc_with` | one comparison and one addition; now and then a new chunk (see below) |
/// | `alloc_slice_...`, `alloc_str` | as `alloc`, and writing the bytes |
/// | `try_grow` | as `alloc` if it grows in place; otherwise an allocation and a copy |
/// | `reset` | constant, and one free for each chunk that was not needed recently |
/// | `release`, drop | one free for each chunk |
/// | `len`, `capacity`, `peak`, `high_water`, `chunks`, limits | constant; they allocate nothing |
///
/// When the current chunk is full, the arena moves to the next one. This is a chunk kept for reuse,
/// or a new chunk (one malloc) with the size that the [`Growth`] gives.
///
/// An allocation that is larger than an eighth of the next chunk gets a dedicated chunk (a chunk of
/// its own) instead. The arena tries up to eight dedicated chunks that were kept for reuse. If none
/// of them fits, it allocates a new one (one malloc). The `try_` variants cost the same.
///
/// # Threads
/// An arena may move to another thread (`Send`) but is used by one thread at a time (not `Sync`).
/// [`SyncArena`](crate::SyncArena) is for several threads.
///
/// ```compile_fail,E0277
/// let arena = rookery_arena::Arena::new();
/// std::thread::scope(|scope| _ = scope.spawn(|| arena.alloc(1)));
/// ```
///
/// # Panics
/// A method without `try_` in its name panics when the memory is not available. The message has the
/// number of requested bytes and the limit. The `try_` variant returns both as an [`AllocError`].
pub struct Arena {
    /// The address at which the arena allocates next. Only `reset` and `release` move it back.
    cursor: Cell<usize>,
    /// The end of the current chunk. The pointers to all allocations in the chunk are derived from
    /// this pointer. An allocation reads it together with the cursor (the address of the next
    /// allocation), so the two fields are adjacent, usually in one cache line.
    end: Cell<NonNull<u8>>,
    chunks: UnsafeCell<ChunkSet>,
}

// SAFETY: the arena owns its chunks, and only borrows of the arena refer to them, which end before
// it moves to another thread. The arena drops none of the values in it, so no destructor moves
// along.
unsafe impl Send for Arena {}

impl Arena {
    /// Makes an empty arena with the default [`Growth`]: the first chunk has 512 bytes, and each
    /// further chunk twice as many, up to 128 KiB.
    ///
    /// # Allocation
    /// None. The first allocation from the arena allocates the first chunk.
    pub const fn new() -> Arena {
        Arena::with_growth(Growth::new(layout::DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK))
    }

    /// Makes an empty arena whose first chunk has `size` bytes. The sizes of further chunks double
    /// up to 128 KiB; if `size` is larger than 128 KiB, all chunks have `size` bytes. The size
    /// includes the chunk's header (32 bytes) and malloc's overhead (32 bytes).
    ///
    /// # Allocation
    /// None. The first allocation from the arena allocates the first chunk.
    pub const fn with_chunk_size(size: usize) -> Arena {
        Arena::with_growth(Growth::new(size, DEFAULT_MAX_CHUNK))
    }

    /// Makes an empty arena. The sizes of its chunks grow according to `growth`.
    ///
    /// # Allocation
    /// None. The first allocation from the arena allocates the first chunk.
    pub const fn with_growth(growth: Growth) -> Arena {
        Arena {
            cursor: Cell::new(NOWHERE),
            end: Cell::new(NonNull::dangling()),
            chunks: UnsafeCell::new(ChunkSet::new(growth)),
        }
    }

    /// Frees all allocations of the arena. Keeps its memory for reuse up to the high-water mark,
    /// and returns the memory above the mark to the allocator.
    ///
    /// The high-water mark is the number of bytes that the arena recently needed between two
    /// resets. At each reset, it rises to the number of bytes just used, or falls by at most an
    /// eighth towards this number.
    ///
    /// # Allocation
    /// None. If the program allocates the same amounts between all resets, a reset frees nothing
    /// and takes constant time, and later allocations (including growing collections) need no new
    /// memory.
    pub fn reset(&mut self) {
        let cursor = self.cursor.get();
        if let Some(chunk) = self.chunks.get_mut().reset(cursor) {
            self.enter(chunk);
        }
    }

    /// Frees all allocations of the arena, and returns its memory to the allocator. The arena's
    /// limit and growth stay the same. Its statistics [`high_water`](Arena::high_water) and
    /// [`peak`](Arena::peak) start again at zero.
    pub fn release(&mut self) {
        self.chunks.get_mut().release();
        self.cursor.set(NOWHERE);
        self.end.set(NonNull::dangling());
    }

    /// Sets the maximum number of bytes of memory that the arena may hold; `None` means no limit.
    /// If the arena already holds more, it keeps that memory.
    ///
    /// The headers of chunks count towards the limit. An allocation fails only if it would exceed
    /// the limit even after the arena has freed all memory that it keeps for reuse.
    pub fn set_allocation_limit(&mut self, limit: Option<usize>) {
        self.chunks.get_mut().set_limit(limit.unwrap_or(NO_LIMIT));
    }

    /// Returns the maximum number of bytes that the arena may hold from the global allocator, or
    /// `None` if there is no limit.
    pub fn allocation_limit(&self) -> Option<usize> {
        let limit = self.state().limit();
        (limit != NO_LIMIT).then_some(limit)
    }

    /// Returns the number of bytes that were allocated from the arena since the last reset. Padding
    /// before aligned allocations is included, except in dedicated chunks (chunks for one large
    /// allocation).
    #[doc(alias = "allocated_bytes")]
    pub fn len(&self) -> usize {
        self.state().len(self.cursor.get())
    }

    /// Returns true if nothing was allocated from the arena since the last reset.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that the arena holds from the global allocator: its chunks with
    /// their headers, including chunks kept for reuse.
    pub fn capacity(&self) -> usize {
        self.state().capacity()
    }

    /// Returns the maximum of [`len`](Arena::len) (the allocated bytes) since the arena was made or
    /// last released.
    pub fn peak(&self) -> usize {
        self.state().peak(self.cursor.get())
    }

    /// Returns the arena's high-water mark: the number of bytes that it recently needed between two
    /// resets. The next [`reset`](Arena::reset) keeps at least this much memory. A reset lowers the
    /// mark by at most an eighth, if less memory was used.
    pub fn high_water(&self) -> usize {
        self.state().mark(self.cursor.get())
    }

    /// Returns the number of chunks that the arena holds, including those kept for reuse.
    pub fn chunks(&self) -> usize {
        self.state().count()
    }

    /// Returns the number of dedicated chunks in use. A dedicated chunk holds one large allocation.
    pub fn dedicated_chunks(&self) -> usize {
        self.state().dedicated_count()
    }

    /// Returns the [`Growth`] that determines the sizes of the arena's chunks.
    pub fn growth(&self) -> Growth {
        self.state().growth()
    }

    /// Allocates uninitialized memory for `layout`, of any size and alignment. The padding before
    /// the allocation has fewer bytes than its alignment. The memory is valid until the arena is
    /// reset, released or dropped.
    ///
    /// For an empty layout, the result is a dangling, aligned pointer.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        match self.bump(layout) {
            Some(start) => start,
            None => match self.alloc_slow(layout) {
                Ok(start) => start,
                Err(error) => error.raise(),
            },
        }
    }

    /// Allocates uninitialized memory for `layout`, as [`alloc_layout`](Arena::alloc_layout) does,
    /// but returns an error instead of panicking.
    ///
    /// # Errors
    /// If the memory is not available.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.bump(layout) {
            Some(start) => Ok(start),
            None => self.alloc_slow(layout),
        }
    }

    /// Enlarges the allocation at `start` from the layout `old` to `new`, and returns its new
    /// address.
    /// - If it is the last allocation in its chunk and the chunk has space, it grows in place.
    /// - If it is in the most recent dedicated chunk (a chunk for one large allocation), this chunk
    ///   is resized.
    /// - Otherwise it is copied, and the old memory remains unused until the next reset.
    ///
    /// # Errors
    /// If the memory is not available. In this case the old allocation is unchanged.
    ///
    /// # Safety
    /// - `start` came from this arena for the layout `old` and is still valid. If `old` is empty,
    ///   `start` may be any pointer.
    /// - `new` has the alignment of `old` and is at least as large.
    /// - Nothing else refers to the old allocation, and `start` is not used after success.
    #[inline]
    pub unsafe fn try_grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        debug_assert!(new.size() >= old.size() && new.align() == old.align());
        let (cursor, end) = (self.cursor.get(), self.end.get());
        // An allocation of another chunk cannot end at the cursor, because a header precedes the
        // first byte of each chunk.
        if old.size() != 0 && start.addr().get() + old.size() == cursor {
            let more = new.size() - old.size();
            if more <= end.addr().get() - cursor {
                self.cursor.set(cursor + more);
                // The caller's pointer may be valid for the old bytes only, whereas `end` is valid
                // for the whole chunk.
                return Ok(end.map_addr(|_| start.addr()));
            }
        }
        // SAFETY: the caller guarantees the conditions.
        unsafe { self.grow_slow(start, old, new) }
    }

    /// Returns the arena's peak (the largest number of bytes that were allocated at any time), and
    /// lowers the peak to the number of bytes that are allocated now.
    pub(crate) fn take_peak(&mut self) -> usize {
        let cursor = self.cursor.get();
        self.chunks.get_mut().take_peak(cursor)
    }

    /// Allocates memory for `len` values of type `T`. Returns a dangling pointer if the values are
    /// zero-sized.
    #[inline]
    fn try_alloc_array<T>(&self, len: usize) -> Result<NonNull<T>, AllocError> {
        if size_of::<T>() == 0 {
            return Ok(NonNull::dangling());
        }
        let layout = array::<T>(len)?;
        match self.bump_whole(layout) {
            Some(start) => Ok(start.cast()),
            None => self.alloc_slow(layout).map(NonNull::cast),
        }
    }

    /// Allocates memory for one value of type `T`.
    #[inline]
    fn try_alloc_one<T>(&self) -> Result<NonNull<T>, AllocError> {
        if size_of::<T>() == 0 {
            return Ok(NonNull::dangling());
        }
        match self.bump_whole(Layout::new::<T>()) {
            Some(start) => Ok(start.cast()),
            None => self.alloc_slow(Layout::new::<T>()).map(NonNull::cast),
        }
    }

    /// Allocates memory in the current chunk by moving the cursor (the address of the next
    /// allocation). Returns `None` if `layout` does not fit into the chunk.
    #[inline]
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let end = self.end.get();
        let fit = layout::fit(self.cursor.get(), end.addr().get(), layout)?;
        self.cursor.set(fit.end);
        // SAFETY: `fit` is for this cursor and this end.
        Some(unsafe { at(end, fit) })
    }

    /// Allocates memory in the current chunk, as [`bump`](Arena::bump) does, but faster. `layout`
    /// must be the layout of a type or a slice, so that its size is a multiple of its alignment.
    #[inline]
    fn bump_whole(&self, layout: Layout) -> Option<NonNull<u8>> {
        let end = self.end.get();
        let fit = layout::fit_whole(self.cursor.get(), end.addr().get(), layout)?;
        self.cursor.set(fit.end);
        // SAFETY: `fit` is for this cursor and this end.
        Some(unsafe { at(end, fit) })
    }

    fn enter(&self, chunk: Chunk) {
        // SAFETY: the chunk belongs to this arena.
        let (data, end) = unsafe { (chunk.data(), chunk.end()) };
        self.cursor.set(data.addr().get());
        self.end.set(end);
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        // SAFETY: the arena is not `Sync`, and `open` calls nothing that could call this arena.
        let chunks = unsafe { &mut *self.chunks.get() };
        match chunks.open(self.cursor.get(), layout)? {
            Opened::Dedicated(start) => Ok(start),
            Opened::Chunk(chunk) => {
                self.enter(chunk);
                Ok(self.bump(layout).expect("a chunk is opened with room for the request"))
            }
        }
    }

    /// Enlarges an allocation that cannot grow in place in the current chunk.
    ///
    /// # Safety
    /// The requirements of [`try_grow`](Arena::try_grow) apply.
    #[cold]
    #[inline(never)]
    unsafe fn grow_slow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if old.size() != 0 {
            // SAFETY: the arena is not `Sync`, and `grow_dedicated` calls nothing that could call
            // this arena.
            let chunks = unsafe { &mut *self.chunks.get() };
            // SAFETY: the caller guarantees the conditions.
            if let Some(grown) = unsafe { chunks.grow_dedicated(start, old, new) } {
                return Ok(grown);
            }
        }
        let grown = self.try_alloc_layout(new)?;
        // SAFETY: the new memory is fresh, so it does not overlap the old, and it is at least as
        // large.
        unsafe { ptr::copy_nonoverlapping(start.as_ptr(), grown.as_ptr(), old.size()) };
        Ok(grown)
    }

    fn state(&self) -> &ChunkSet {
        // SAFETY: the arena is not `Sync`, and no `&mut ChunkSet` outlives the method that made it.
        unsafe { &*self.chunks.get() }
    }
}

typed_methods!(Arena);

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("chunks", &self.chunks())
            .finish_non_exhaustive()
    }
}

/// The address of `NonNull::<u8>::dangling()`. It is both the cursor and the end of an arena that
/// has no chunk, so that no allocation fits between them.
const NOWHERE: usize = 1;

/// Returns a pointer to the allocation at the addresses `fit` in the current chunk. The pointer is
/// derived from `end`, the end of the chunk, because `end` is a pointer that is valid for the whole
/// chunk.
///
/// # Safety
/// `end` is the end of a chunk, and `fit` lies between a cursor in that chunk and `end`.
#[inline]
unsafe fn at(end: NonNull<u8>, fit: Fit) -> NonNull<u8> {
    // SAFETY: the address is after a cursor, which is not null, and the addition does not wrap,
    // because `end` is not before it.
    end.map_addr(|_| unsafe { NonZero::new_unchecked(fit.start) })
}
