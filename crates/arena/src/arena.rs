//! The arena of one thread.

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

/// Memory for everything that lives as long as one request: handed out by moving a cursor, given back all at once.
///
/// An allocation costs one comparison and one addition, however many chunks are full behind the cursor. See the
/// [crate documentation](crate) for when to use it and for what it does not do (it never runs `drop`).
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
/// | `alloc_layout`, `alloc`, `alloc_uninit`, `alloc_with` | one comparison and one addition; now and then a chunk (below) |
/// | `alloc_slice_...`, `alloc_str` | the same, and writing the bytes |
/// | `try_grow` | the same in place; else an allocation and a copy |
/// | `reset` | constant; and one free for each chunk that recent periods did not need |
/// | `release`, drop | one free for each chunk |
/// | `len`, `capacity`, `peak`, `high_water`, `chunks`, limits | constant; they allocate nothing |
///
/// A chunk is entered when the current one is full: one kept from before, or one malloc for what the [`Growth`] says. A
/// request over an eighth of a chunk that does not fit costs one malloc of its own, or takes one of eight kept chunks.
/// The `try_` twins cost the same.
///
/// # Threads
/// An arena may move to another thread (`Send`) but serves one at a time (not `Sync`); see
/// [`SyncArena`](crate::SyncArena).
///
/// ```compile_fail,E0277
/// let arena = rookery_arena::Arena::new();
/// std::thread::scope(|scope| _ = scope.spawn(|| arena.alloc(1)));
/// ```
///
/// # Panics
/// A method without `try_` in its name panics when the memory cannot be had; the message says the bytes asked for and
/// the limit. Its `try_` twin returns that as an [`AllocError`].
pub struct Arena {
    /// The cursor: where the next allocation begins at the earliest. Only `reset` and `release` move it back.
    cursor: Cell<usize>,
    /// The end of the chunk the cursor is in, and the pointer all others are made from. Beside the cursor, so that the
    /// common allocation reads one cache line.
    end: Cell<NonNull<u8>>,
    chunks: UnsafeCell<ChunkSet>,
}

// SAFETY: the arena owns its chunks and nothing else refers to them but borrows of the arena, which end before it
// moves to another thread. What was allocated in it is never dropped by it, so no destructor moves along.
unsafe impl Send for Arena {}

impl Arena {
    /// Makes an empty arena with the default [`Growth`]: 512 bytes, doubling to 128 KiB.
    ///
    /// # Allocation
    /// None until the first allocation.
    pub const fn new() -> Arena {
        Arena::with_growth(Growth::new(layout::DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK))
    }

    /// Makes an empty arena whose first chunk has `size` bytes; further ones double up to 128 KiB, or are all of
    /// `size` if that is larger. The size counts the chunk's header (32 bytes) and what malloc adds (32 bytes).
    ///
    /// # Allocation
    /// None until the first allocation.
    pub const fn with_chunk_size(size: usize) -> Arena {
        Arena::with_growth(Growth::new(size, DEFAULT_MAX_CHUNK))
    }

    /// Makes an empty arena whose chunks grow as `growth` says.
    ///
    /// # Allocation
    /// None until the first allocation.
    pub const fn with_growth(growth: Growth) -> Arena {
        Arena {
            cursor: Cell::new(NOWHERE),
            end: Cell::new(NonNull::dangling()),
            chunks: UnsafeCell::new(ChunkSet::new(growth)),
        }
    }

    /// Takes back everything that was handed out, and keeps the memory for reuse.
    ///
    /// Memory above the decayed high-water mark is freed: the mark is the most that a recent period used, and loses an
    /// eighth at each reset that stays below it, so that a burst is forgotten.
    ///
    /// # Allocation
    /// None. Once each period makes the same requests as the one before, this frees nothing either,
    /// takes a constant time, and the next period allocates nothing. That includes collections that
    /// grow.
    pub fn reset(&mut self) {
        let cursor = self.cursor.get();
        if let Some(chunk) = self.chunks.get_mut().reset(cursor) {
            self.enter(chunk);
        }
    }

    /// Takes back everything that was handed out, and frees the memory. The limit and the growth stay, the high-water
    /// mark and the peak start again.
    pub fn release(&mut self) {
        self.chunks.get_mut().release();
        self.cursor.set(NOWHERE);
        self.end.set(NonNull::dangling());
    }

    /// Sets the most bytes to hold from the allocator, or none. What is held already stays.
    ///
    /// Chunk headers count. An allocation that would pass the limit is refused after memory kept for reuse was freed.
    pub fn set_allocation_limit(&mut self, limit: Option<usize>) {
        self.chunks.get_mut().set_limit(limit.unwrap_or(NO_LIMIT));
    }

    /// The most bytes to hold from the allocator.
    pub fn allocation_limit(&self) -> Option<usize> {
        let limit = self.state().limit();
        (limit != NO_LIMIT).then_some(limit)
    }

    /// Bytes handed out since the last reset. Padding counts where the cursor made it, and not in a
    /// chunk at the side.
    #[doc(alias = "allocated_bytes")]
    pub fn len(&self) -> usize {
        self.state().len(self.cursor.get())
    }

    /// Whether nothing was handed out since the last reset.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held from the allocator: chunks with their headers, and those kept for reuse.
    pub fn capacity(&self) -> usize {
        self.state().capacity()
    }

    /// The largest [`len`](Arena::len) there has been since the arena was made or last released.
    pub fn peak(&self) -> usize {
        self.state().peak(self.cursor.get())
    }

    /// The decayed high-water mark: bytes of chunks that the next [`reset`](Arena::reset) will at least keep.
    pub fn high_water(&self) -> usize {
        self.state().mark(self.cursor.get())
    }

    /// ChunkSet held from the allocator, those kept for reuse included.
    pub fn chunks(&self) -> usize {
        self.state().count()
    }

    /// Requests since the last reset that got a chunk of their own at the side.
    pub fn dedicated_chunks(&self) -> usize {
        self.state().dedicated_count()
    }

    /// How the chunks grow.
    pub fn growth(&self) -> Growth {
        self.state().growth()
    }

    /// Allocates memory for `layout`, uninitialized, of any size and alignment (alignments over 16 may cost as many
    /// bytes of padding). It is valid until the arena is reset, released or dropped.
    ///
    /// An empty layout gives a dangling, aligned pointer.
    ///
    /// # Panics
    /// When the memory cannot be had.
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

    /// As [`alloc_layout`](Arena::alloc_layout).
    ///
    /// # Errors
    /// When the memory cannot be had.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.bump(layout) {
            Some(start) => Ok(start),
            None => self.alloc_slow(layout),
        }
    }

    /// Makes the allocation at `start` larger: in place when it is the last one of its chunk and the chunk has room, or
    /// the last one put aside; else by copying it, and the old memory stays unused until the reset.
    ///
    /// # Errors
    /// When the memory cannot be had; the old allocation is then untouched.
    ///
    /// # Safety
    /// - `start` came from this arena for the layout `old` and is still valid; an empty `old` may come with any `start`.
    /// - `new` has the alignment of `old` and is at least as large.
    /// - Nobody else refers to the old allocation; `start` is not used after success.
    #[inline]
    pub unsafe fn try_grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        debug_assert!(new.size() >= old.size() && new.align() == old.align());
        let (cursor, end) = (self.cursor.get(), self.end.get());
        // No other chunk's allocation can end where the cursor is: a header lies before the first byte of a chunk.
        if old.size() != 0 && start.addr().get() + old.size() == cursor {
            let more = new.size() - old.size();
            if more <= end.addr().get() - cursor {
                self.cursor.set(cursor + more);
                // The caller's pointer may be good for the old bytes only; the end's is for the whole chunk.
                return Ok(end.map_addr(|_| start.addr()));
            }
        }
        // SAFETY: as the caller vouches.
        unsafe { self.grow_slow(start, old, new) }
    }

    /// The peak, which starts again with what is in use now.
    pub(crate) fn take_peak(&mut self) -> usize {
        let cursor = self.cursor.get();
        self.chunks.get_mut().take_peak(cursor)
    }

    /// Memory for `len` values. Without bytes it needs no cursor: a slice of a zero-sized type is never slow.
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

    /// Memory for a value, as [`try_alloc_array`](Arena::try_alloc_array) of one.
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

    /// The allocation that moves the cursor and nothing else, if it fits.
    #[inline]
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let end = self.end.get();
        let fit = layout::fit(self.cursor.get(), end.addr().get(), layout)?;
        self.cursor.set(fit.end);
        // SAFETY: `fit` is for this cursor and this end.
        Some(unsafe { at(end, fit) })
    }

    /// As [`bump`](Arena::bump), for the layout of a type or of a slice.
    #[inline]
    fn bump_whole(&self, layout: Layout) -> Option<NonNull<u8>> {
        let end = self.end.get();
        let fit = layout::fit_whole(self.cursor.get(), end.addr().get(), layout)?;
        self.cursor.set(fit.end);
        // SAFETY: `fit` is for this cursor and this end.
        Some(unsafe { at(end, fit) })
    }

    fn enter(&self, chunk: Chunk) {
        // SAFETY: the chunk is one of this arena's.
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
        // SAFETY: the arena is not `Sync`, and `open` calls nothing that could come back to this arena.
        let chunks = unsafe { &mut *self.chunks.get() };
        match chunks.open(self.cursor.get(), layout)? {
            Opened::Dedicated(start) => Ok(start),
            Opened::Chunk(chunk) => {
                self.enter(chunk);
                Ok(self.bump(layout).expect("a chunk is opened with room for the request"))
            }
        }
    }

    /// # Safety
    /// As for [`try_grow`](Arena::try_grow).
    #[cold]
    #[inline(never)]
    unsafe fn grow_slow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, AllocError> {
        if old.size() != 0 {
            // SAFETY: the arena is not `Sync`, and `grow_dedicated` calls nothing that could come back to this arena.
            let chunks = unsafe { &mut *self.chunks.get() };
            // SAFETY: as the caller vouches.
            if let Some(grown) = unsafe { chunks.grow_dedicated(start, old, new) } {
                return Ok(grown);
            }
        }
        let grown = self.try_alloc_layout(new)?;
        // SAFETY: the new memory is fresh, so apart from the old, and at least as large.
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

/// The address of `NonNull::<u8>::dangling()`, cursor and end of an arena without a chunk: nothing fits between them.
const NOWHERE: usize = 1;

/// The pointer to an allocation.
///
/// # Safety
/// `fit` was found before the address of `end`, past a cursor in the same chunk.
#[inline]
unsafe fn at(end: NonNull<u8>, fit: Fit) -> NonNull<u8> {
    // SAFETY: past a cursor, which is not null, and without wrapping: the end is not before it.
    end.map_addr(|_| unsafe { NonZero::new_unchecked(fit.start) })
}
