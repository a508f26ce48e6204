//! Chunks of an arena: blocks of memory from the global allocator. Each chunk begins with a header
//! that links it into a list.
//!
//! # Ground rules
//! - A chunk belongs to at most one [`ChunkList`] at a time. Only the owner of the list, which has
//!   `&mut` access to it, reads and writes the headers of its chunks.
//! - A list never accesses the bytes after a header. They belong to the code that allocated them
//!   from the arena.
//! - Dropping a list frees its chunks.

use alloc::alloc::{alloc, dealloc, realloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use crate::layout::{CHUNK_ALIGN, HEADER};

/// A pointer to a chunk, a block of an arena's memory. The pointer can be copied freely; only the
/// owner of the list that contains the chunk may access the chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk(NonNull<Header>);

/// The header at the beginning of each chunk (a block of an arena's memory).
#[repr(C, align(16))]
struct Header {
    previous: Option<Chunk>,
    next: Option<Chunk>,
    /// The size of the chunk in bytes, with its header, as requested from the global allocator.
    size: usize,
    /// In a dedicated chunk (a chunk for one large allocation): the initial size of its current or
    /// last allocation.
    first: Units,
    /// In a dedicated chunk (a chunk for one large allocation): the size to which its current or
    /// last allocation has grown.
    used: Units,
}

/// A number of bytes in units of [`CHUNK_ALIGN`] (16 bytes), rounded up. It takes 32 bits, so that
/// two of these numbers fit into the last word of a chunk's header. From 64 GiB on, a number counts
/// as infinite.
#[derive(Clone, Copy)]
struct Units(u32);

impl Units {
    fn of(bytes: usize) -> Units {
        Units(u32::try_from(bytes.div_ceil(CHUNK_ALIGN)).unwrap_or(u32::MAX))
    }

    fn bytes(self) -> usize {
        if self.0 == u32::MAX { usize::MAX } else { self.0 as usize * CHUNK_ALIGN }
    }
}

const _: () = assert!(size_of::<Header>() == HEADER && align_of::<Header>() == CHUNK_ALIGN);

impl Chunk {
    /// Allocates a chunk of `size` bytes. The size must be at least [`HEADER`] and at most
    /// `isize::MAX - 16`. Returns `None` if the global allocator fails.
    pub(crate) fn allocate(size: usize) -> Option<Chunk> {
        debug_assert!(size >= HEADER && size <= isize::MAX as usize - CHUNK_ALIGN);
        // SAFETY: the layout is not empty, because `size >= HEADER`.
        let start = NonNull::new(unsafe { alloc(Chunk::layout(size)) })?.cast::<Header>();
        // SAFETY: the block is fresh, aligned for `Header` and at least as large.
        unsafe {
            start.write(Header {
                previous: None,
                next: None,
                size,
                first: Units(0),
                used: Units(0),
            });
        };
        Some(Chunk(start))
    }

    /// Returns the size of the chunk in bytes, with its header.
    ///
    /// # Safety
    /// The chunk has not been freed, and the caller owns the list that it is in.
    pub(crate) unsafe fn size(self) -> usize {
        // SAFETY: a live chunk begins with an initialized header.
        unsafe { (*self.0.as_ptr()).size }
    }

    /// Records that the dedicated chunk now serves an allocation of `room` bytes.
    ///
    /// # Safety
    /// The chunk has not been freed, and the caller owns the list that it is in.
    pub(crate) unsafe fn serve(self, room: usize) {
        // SAFETY: a live chunk begins with an initialized header, and the caller owns its list.
        unsafe {
            ((*self.0.as_ptr()).first, (*self.0.as_ptr()).used) =
                (Units::of(room), Units::of(room));
        };
    }

    /// Records that the allocation in the dedicated chunk has grown to `room` bytes.
    ///
    /// # Safety
    /// The chunk has not been freed, and the caller owns the list that it is in.
    pub(crate) unsafe fn set_used(self, room: usize) {
        // SAFETY: a live chunk begins with an initialized header, and the caller owns its list.
        unsafe { (*self.0.as_ptr()).used = Units::of(room) };
    }

    /// Returns two sizes of the last allocation in the dedicated chunk: its size when it was made,
    /// and its size after it has grown. Both are zero if the chunk has not contained an allocation
    /// yet.
    ///
    /// # Safety
    /// The chunk has not been freed, and the caller owns the list that it is in.
    pub(crate) unsafe fn served(self) -> (usize, usize) {
        // SAFETY: a live chunk begins with an initialized header.
        unsafe { ((*self.0.as_ptr()).first.bytes(), (*self.0.as_ptr()).used.bytes()) }
    }

    /// Returns the chunk that follows this one in its list, or `None` if this is the last one.
    ///
    /// # Safety
    /// The chunk has not been freed, and the caller owns the list that it is in.
    pub(crate) unsafe fn next(self) -> Option<Chunk> {
        // SAFETY: a live chunk begins with an initialized header.
        unsafe { (*self.0.as_ptr()).next }
    }

    /// Returns a pointer to the first byte after the chunk's header. Its address is a multiple of
    /// [`CHUNK_ALIGN`]. The pointer is valid for the whole chunk.
    ///
    /// # Safety
    /// The chunk has not been freed.
    pub(crate) unsafe fn data(self) -> NonNull<u8> {
        // SAFETY: a chunk has at least `HEADER` bytes.
        unsafe { self.0.cast::<u8>().add(HEADER) }
    }

    /// Returns a pointer to the end of the chunk.
    ///
    /// # Safety
    /// The chunk has not been freed, and the caller owns the list that it is in.
    pub(crate) unsafe fn end(self) -> NonNull<u8> {
        // SAFETY: `size` is the size of the block that begins here.
        unsafe { self.0.cast::<u8>().add(self.size()) }
    }

    /// Frees the chunk: returns its memory to the global allocator.
    ///
    /// # Safety
    /// - The chunk has not been freed and is in no list.
    /// - Nothing in the chunk is used afterwards.
    unsafe fn free(self) {
        // SAFETY: allocated in `allocate` or `resize` with the layout of this size.
        unsafe { dealloc(self.0.as_ptr().cast(), Chunk::layout(self.size())) }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, CHUNK_ALIGN)
            .expect("allocate bounds the size by isize::MAX - 16")
    }
}

/// A linked list of chunks (blocks of an arena's memory), with their number and their total size.
pub(crate) struct ChunkList {
    head: Option<Chunk>,
    tail: Option<Chunk>,
    bytes: usize,
    count: usize,
}

impl ChunkList {
    pub(crate) const fn new() -> ChunkList {
        ChunkList { head: None, tail: None, bytes: 0, count: 0 }
    }

    /// Appends a chunk to the list.
    ///
    /// # Safety
    /// The chunk has not been freed and is in no list.
    pub(crate) unsafe fn push_back(&mut self, chunk: Chunk) {
        // SAFETY: the chunk and the tail are live, and this list owns both headers now.
        unsafe {
            (*chunk.0.as_ptr()).previous = self.tail;
            (*chunk.0.as_ptr()).next = None;
            match self.tail {
                Some(tail) => (*tail.0.as_ptr()).next = Some(chunk),
                None => self.head = Some(chunk),
            }
            self.bytes += chunk.size();
        }
        self.tail = Some(chunk);
        self.count += 1;
    }

    /// Removes `chunk` from the list.
    ///
    /// # Safety
    /// The chunk is in this list.
    pub(crate) unsafe fn remove(&mut self, chunk: Chunk) {
        // SAFETY: the chunk is in this list, so it and its neighbours are live, and this list owns
        // their headers.
        unsafe {
            let (previous, next) = ((*chunk.0.as_ptr()).previous, (*chunk.0.as_ptr()).next);
            match previous {
                Some(previous) => (*previous.0.as_ptr()).next = next,
                None => self.head = next,
            }
            match next {
                Some(next) => (*next.0.as_ptr()).previous = previous,
                None => self.tail = previous,
            }
            self.bytes -= chunk.size();
        }
        self.count -= 1;
    }

    /// Moves all chunks of the list `other`, in their order, to the front of this list.
    pub(crate) fn prepend(&mut self, other: &mut ChunkList) {
        let (Some(first), Some(last)) = (other.head, other.tail) else { return };
        match self.head {
            Some(head) => {
                // SAFETY: both chunks are live, and both lists are owned here.
                unsafe {
                    (*last.0.as_ptr()).next = Some(head);
                    (*head.0.as_ptr()).previous = Some(last);
                }
            }
            None => self.tail = Some(last),
        }
        self.head = Some(first);
        self.bytes += other.bytes;
        self.count += other.count;
        // The chunks have moved: `other` must not free them.
        (other.head, other.tail, other.bytes, other.count) = (None, None, 0, 0);
    }

    /// Resizes the last chunk of the list to `size` bytes, and returns it. The chunk may move to
    /// another address. Its contents, as far as they fit, move with it. Returns `None` and changes
    /// nothing if the allocator fails.
    ///
    /// # Safety
    /// - The list is not empty.
    /// - Nothing in that chunk is used through an older pointer afterwards.
    /// - `size` is valid for [`Chunk::allocate`].
    pub(crate) unsafe fn resize_back(&mut self, size: usize) -> Option<Chunk> {
        let old = self.tail?;
        // SAFETY: the tail is live, and this list owns it.
        let old_size = unsafe { old.size() };
        // SAFETY: the chunk was allocated with this layout, and the new size is not zero and,
        // rounded up, at most `isize::MAX`.
        let moved = unsafe { realloc(old.0.as_ptr().cast(), Chunk::layout(old_size), size) };
        let chunk = Chunk(NonNull::new(moved)?.cast::<Header>());
        // SAFETY: the header was moved along, and its neighbour is live and belongs to this list.
        unsafe {
            (*chunk.0.as_ptr()).size = size;
            match (*chunk.0.as_ptr()).previous {
                Some(previous) => (*previous.0.as_ptr()).next = Some(chunk),
                None => self.head = Some(chunk),
            }
        }
        self.tail = Some(chunk);
        self.bytes = self.bytes - old_size + size;
        Some(chunk)
    }

    /// Frees the last chunk of the list repeatedly, as long as `is_surplus` returns true. The
    /// arguments of `is_surplus` are the total size of the chunks before the last one, and the size
    /// of the last one.
    ///
    /// # Safety
    /// Nothing in this list is in use.
    pub(crate) unsafe fn trim(&mut self, is_surplus: impl Fn(usize, usize) -> bool) {
        while let Some(tail) = self.tail {
            // SAFETY: the tail is live, and this list owns it.
            let size = unsafe { tail.size() };
            if !is_surplus(self.bytes - size, size) {
                return;
            }
            // SAFETY: the chunk is the tail of this list.
            unsafe { self.remove(tail) };
            // SAFETY: the chunk was just removed, and the caller guarantees that nothing in it is
            // in use.
            unsafe { tail.free() };
        }
    }

    pub(crate) fn head(&self) -> Option<Chunk> {
        self.head
    }

    pub(crate) fn tail(&self) -> Option<Chunk> {
        self.tail
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

impl Drop for ChunkList {
    fn drop(&mut self) {
        // SAFETY: the owner of the list drops it together with all allocations.
        unsafe { self.trim(|_, _| true) };
    }
}
