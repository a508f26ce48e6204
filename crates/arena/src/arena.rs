//! The arena of one thread.

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::num::NonZero;
use core::ptr::{self, NonNull};
use core::slice;
use core::str;

use crate::chunks::{Chunks, Opened};
use crate::error::{AllocError, NO_LIMIT};
use crate::layout::{self, DEFAULT_MAX_CHUNK, Growth};
use crate::zero::Zeroable;

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
/// # Threads
/// An arena may move to another thread (`Send`) but serves one at a time (not `Sync`); see
/// [`SyncArena`](crate::SyncArena).
///
/// # Panics
/// A method without `try_` in its name panics when the memory cannot be had; the message says the bytes asked for and
/// the limit. Its `try_` twin returns that as an [`AllocError`].
pub struct Arena {
    /// Where the next allocation begins at the earliest. Only `reset` and `release` move it back.
    cursor: Cell<NonNull<u8>>,
    /// The end of the chunk the cursor is in. Beside the cursor, so that the common allocation reads one cache line.
    end: Cell<NonNull<u8>>,
    chunks: UnsafeCell<Chunks>,
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
            cursor: Cell::new(NonNull::dangling()),
            end: Cell::new(NonNull::dangling()),
            chunks: UnsafeCell::new(Chunks::new(growth)),
        }
    }

    /// Takes back everything that was handed out, and keeps the memory for reuse.
    ///
    /// Memory above the decayed high-water mark is freed: the mark is the most that a recent period used, and loses an
    /// eighth at each reset that stays below it, so that a burst is forgotten.
    ///
    /// # Allocation
    /// None. When each period uses what the one before did, this frees nothing either, takes a constant time, and the
    /// next period allocates nothing.
    pub fn reset(&mut self) {
        let cursor = self.cursor.get();
        let (cursor, end) =
            self.chunks.get_mut().reset(cursor).unwrap_or((NonNull::dangling(), NonNull::dangling()));
        self.cursor.set(cursor);
        self.end.set(end);
    }

    /// Takes back everything that was handed out, and frees the memory. The limit and the growth stay, the high-water
    /// mark and the peak start again.
    pub fn release(&mut self) {
        self.chunks.get_mut().release();
        self.cursor.set(NonNull::dangling());
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

    /// Bytes handed out since the last reset, with the padding before aligned ones.
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

    /// Chunks held from the allocator, those kept for reuse included.
    pub fn chunks(&self) -> usize {
        self.state().count()
    }

    /// Requests since the last reset that got a chunk of their own at the side.
    pub fn chunks_aside(&self) -> usize {
        self.state().aside_count()
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

    /// Moves `value` into the arena. It is never dropped.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc<T>(&self, value: T) -> &mut T {
        self.alloc_with(|| value)
    }

    /// As [`alloc`](Arena::alloc).
    ///
    /// # Errors
    /// When the memory cannot be had; `value` is dropped then.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc<T>(&self, value: T) -> Result<&mut T, AllocError> {
        self.try_alloc_with(|| value)
    }

    /// Makes a value in place, which spares a large one the way over the stack. `make` may allocate in this arena.
    ///
    /// # Panics
    /// When the memory cannot be had, and with `make`; its memory then stays unused until the reset.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &mut T {
        if size_of::<T>() == 0 {
            // SAFETY: a value without bytes needs no memory, only an aligned address.
            return unsafe { init(NonNull::dangling(), make) };
        }
        let start = self.alloc_layout(Layout::new::<T>()).cast::<T>();
        // SAFETY: fresh memory for a `T`.
        unsafe { init(start, make) }
    }

    /// As [`alloc_with`](Arena::alloc_with).
    ///
    /// # Errors
    /// When the memory cannot be had; `make` is not called then.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc_with<T>(&self, make: impl FnOnce() -> T) -> Result<&mut T, AllocError> {
        if size_of::<T>() == 0 {
            // SAFETY: a value without bytes needs no memory, only an aligned address.
            return Ok(unsafe { init(NonNull::dangling(), make) });
        }
        let start = self.try_alloc_layout(Layout::new::<T>())?.cast::<T>();
        // SAFETY: fresh memory for a `T`.
        Ok(unsafe { init(start, make) })
    }

    /// Copies `values` into the arena.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc_slice_copy<T: Copy>(&self, values: &[T]) -> &mut [T] {
        let start = if size_of::<T>() == 0 {
            NonNull::dangling()
        } else {
            self.alloc_layout(Layout::for_value(values)).cast()
        };
        // SAFETY: fresh memory for as many.
        unsafe { copy(start, values) }
    }

    /// As [`alloc_slice_copy`](Arena::alloc_slice_copy).
    ///
    /// # Errors
    /// When the memory cannot be had.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc_slice_copy<T: Copy>(&self, values: &[T]) -> Result<&mut [T], AllocError> {
        let start = self.try_alloc_array::<T>(values.len())?;
        // SAFETY: fresh memory for as many.
        Ok(unsafe { copy(start, values) })
    }

    /// Allocates `len` copies of `value`.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc_slice_fill<T: Copy>(&self, len: usize, value: T) -> &mut [T] {
        match self.try_alloc_slice_fill(len, value) {
            Ok(slice) => slice,
            Err(error) => error.raise(),
        }
    }

    /// As [`alloc_slice_fill`](Arena::alloc_slice_fill).
    ///
    /// # Errors
    /// When the memory cannot be had.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc_slice_fill<T: Copy>(&self, len: usize, value: T) -> Result<&mut [T], AllocError> {
        let start = self.try_alloc_array::<T>(len)?;
        // Copies without bytes need no loop, which a debug build would run `len` times.
        let copies = if size_of::<T>() == 0 { 0 } else { len };
        // SAFETY: fresh memory for `len` of them; without bytes all are initialized.
        unsafe { fill(start, copies, |_| value) };
        // SAFETY: just initialized.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Allocates `len` values, made in order by `make`, which is given the index and may allocate in this arena.
    ///
    /// # Panics
    /// When the memory cannot be had, and with `make`; what was made before is then not dropped.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc_slice_with<T>(&self, len: usize, make: impl FnMut(usize) -> T) -> &mut [T] {
        match self.try_alloc_slice_with(len, make) {
            Ok(slice) => slice,
            Err(error) => error.raise(),
        }
    }

    /// As [`alloc_slice_with`](Arena::alloc_slice_with).
    ///
    /// # Errors
    /// When the memory cannot be had; `make` is not called then.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc_slice_with<T>(
        &self,
        len: usize,
        make: impl FnMut(usize) -> T,
    ) -> Result<&mut [T], AllocError> {
        let start = self.try_alloc_array::<T>(len)?;
        // SAFETY: fresh memory for `len` of them.
        Ok(unsafe { fill(start, len, make) })
    }

    /// Allocates `len` zeros. (Other allocations are not zeroed: `reset` leaves old contents behind.)
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc_slice_zeroed<T: Zeroable>(&self, len: usize) -> &mut [T] {
        match self.try_alloc_slice_zeroed(len) {
            Ok(slice) => slice,
            Err(error) => error.raise(),
        }
    }

    /// As [`alloc_slice_zeroed`](Arena::alloc_slice_zeroed).
    ///
    /// # Errors
    /// When the memory cannot be had.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc_slice_zeroed<T: Zeroable>(&self, len: usize) -> Result<&mut [T], AllocError> {
        let start = self.try_alloc_array::<T>(len)?;
        // SAFETY: fresh memory for `len` of them.
        unsafe { start.as_ptr().write_bytes(0, len) };
        // SAFETY: just initialized, for `Zeroable` says that zeros are a value.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) })
    }

    /// Copies `text` into the arena.
    ///
    /// # Panics
    /// When the memory cannot be had.
    #[inline]
    #[track_caller]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn alloc_str(&self, text: &str) -> &mut str {
        let bytes = self.alloc_slice_copy(text.as_bytes());
        // SAFETY: a copy of text.
        unsafe { str::from_utf8_unchecked_mut(bytes) }
    }

    /// As [`alloc_str`](Arena::alloc_str).
    ///
    /// # Errors
    /// When the memory cannot be had.
    #[inline]
    #[allow(clippy::mut_from_ref)] // each call hands out other memory
    pub fn try_alloc_str(&self, text: &str) -> Result<&mut str, AllocError> {
        let bytes = self.try_alloc_slice_copy(text.as_bytes())?;
        // SAFETY: a copy of text.
        Ok(unsafe { str::from_utf8_unchecked_mut(bytes) })
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
        if old.size() != 0 && start.addr().get() + old.size() == cursor.addr().get() {
            let more = new.size() - old.size();
            if more <= end.addr().get() - cursor.addr().get() {
                // SAFETY: `more` bytes are left before the end of the chunk.
                self.cursor.set(unsafe { cursor.add(more) });
                // The caller's pointer may be good for the old bytes only; the cursor's is for the whole chunk.
                return Ok(cursor.map_addr(|_| start.addr()));
            }
        }
        // SAFETY: as the caller vouches.
        unsafe { self.grow_slow(start, old, new) }
    }

    /// Memory for `len` values. Without bytes it needs no cursor: a slice of a zero-sized type is never slow.
    #[inline]
    fn try_alloc_array<T>(&self, len: usize) -> Result<NonNull<T>, AllocError> {
        if size_of::<T>() == 0 {
            return Ok(NonNull::dangling());
        }
        Ok(self.try_alloc_layout(array::<T>(len)?)?.cast())
    }

    /// The allocation that moves the cursor and nothing else, if it fits.
    #[inline]
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let cursor = self.cursor.get();
        let fit = layout::fit(cursor.addr().get(), self.end.get().addr().get(), layout)?;
        // SAFETY: `fit` lies between the cursor and the end of the current chunk, where both pointers are valid.
        unsafe {
            self.cursor.set(cursor.map_addr(|_| NonZero::new_unchecked(fit.end)));
            Some(cursor.map_addr(|_| NonZero::new_unchecked(fit.start)))
        }
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
            Opened::Aside(start) => Ok(start),
            Opened::Chunk { cursor, end } => {
                self.cursor.set(cursor);
                self.end.set(end);
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
            // SAFETY: the arena is not `Sync`, and `grow_aside` calls nothing that could come back to this arena.
            let chunks = unsafe { &mut *self.chunks.get() };
            // SAFETY: as the caller vouches.
            if let Some(grown) = unsafe { chunks.grow_aside(start, old.size(), new) } {
                return Ok(grown);
            }
        }
        let grown = self.try_alloc_layout(new)?;
        // SAFETY: the new memory is fresh, so apart from the old, and at least as large.
        unsafe { ptr::copy_nonoverlapping(start.as_ptr(), grown.as_ptr(), old.size()) };
        Ok(grown)
    }

    fn state(&self) -> &Chunks {
        // SAFETY: the arena is not `Sync`, and no `&mut Chunks` outlives the method that made it.
        unsafe { &*self.chunks.get() }
    }
}

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

/// The layout of `len` values.
#[inline]
pub(crate) fn array<T>(len: usize) -> Result<Layout, AllocError> {
    Layout::array::<T>(len).map_err(|_| AllocError::too_large())
}

/// A pointer that is not null and aligned, for an empty layout.
pub(crate) fn dangling(layout: Layout) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(layout.align())).expect("an alignment is not zero")
}

/// # Safety
/// `start` is memory for a `T`, that nobody else refers to for `'a`.
#[inline]
pub(crate) unsafe fn init<'a, T>(start: NonNull<T>, make: impl FnOnce() -> T) -> &'a mut T {
    // SAFETY: as the caller vouches.
    unsafe {
        start.write(make());
        &mut *start.as_ptr()
    }
}

/// # Safety
/// `start` is memory for as many, that nobody else refers to for `'a`.
#[inline]
pub(crate) unsafe fn copy<'a, T: Copy>(start: NonNull<T>, values: &[T]) -> &'a mut [T] {
    // SAFETY: as the caller vouches; `values` was there before the memory was handed out, so they are apart.
    unsafe {
        ptr::copy_nonoverlapping(values.as_ptr(), start.as_ptr(), values.len());
        slice::from_raw_parts_mut(start.as_ptr(), values.len())
    }
}

/// # Safety
/// `start` is memory for `len` of them, that nobody else refers to for `'a`.
#[inline]
pub(crate) unsafe fn fill<'a, T>(
    start: NonNull<T>,
    len: usize,
    mut make: impl FnMut(usize) -> T,
) -> &'a mut [T] {
    for index in 0..len {
        // SAFETY: `index < len`.
        unsafe { start.add(index).write(make(index)) };
    }
    // SAFETY: all `len` are initialized.
    unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
}
