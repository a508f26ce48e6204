//! The allocator interface of `allocator-api2`, for collections of other crates.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};

use crate::arena::Arena;
use crate::sync::SyncArena;

/// Frees nothing before the arena is reset. The last allocation grows in place.
// SAFETY: the memory is valid until the arena is reset, released or dropped, and none of these is
// possible while a reference to the arena exists.
unsafe impl Allocator for &Arena {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        sized(self.try_alloc_layout(layout), layout)
    }

    #[inline]
    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}

    #[inline]
    unsafe fn grow(
        &self,
        start: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if new.align() != old.align() {
            // SAFETY: the caller guarantees the conditions.
            return unsafe { moved(self, start, old.size(), new) };
        }
        // SAFETY: the caller guarantees the conditions. `old` is at most as large as the
        // allocation, because `shrink` returns an allocation as it is.
        sized(unsafe { self.try_grow(start, old, new) }, new)
    }

    #[inline]
    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        _: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller guarantees the conditions.
        unsafe { shrunk(self, start, new) }
    }
}

/// Frees nothing before the arena is reset, and grows nothing in place.
// SAFETY: as for `Arena`.
unsafe impl Allocator for &SyncArena {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        sized(self.try_alloc_layout(layout), layout)
    }

    #[inline]
    unsafe fn deallocate(&self, _: NonNull<u8>, _: Layout) {}

    #[inline]
    unsafe fn shrink(
        &self,
        start: NonNull<u8>,
        _: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller guarantees the conditions.
        unsafe { shrunk(self, start, new) }
    }
}

/// Returns an allocation as the allocator interface wants it.
#[inline]
fn sized(
    start: Result<NonNull<u8>, crate::AllocError>,
    layout: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    match start {
        Ok(start) => Ok(NonNull::slice_from_raw_parts(start, layout.size())),
        Err(_) => Err(AllocError),
    }
}

/// Returns the allocation at `start` as one of the layout `new`, which is smaller. It stays where
/// it is, unless `new` has a larger alignment that its address does not have.
///
/// # Safety
/// The conditions of [`Allocator::shrink`] hold.
unsafe fn shrunk(
    allocator: &impl Allocator,
    start: NonNull<u8>,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    if start.addr().get() % new.align() == 0 {
        return Ok(NonNull::slice_from_raw_parts(start, new.size()));
    }
    // SAFETY: the allocation has at least `new.size()` bytes.
    unsafe { moved(allocator, start, new.size(), new) }
}

/// Copies `len` bytes at `start` to a new allocation with the layout `new`.
///
/// # Safety
/// The allocation at `start` has at least `len` bytes, and `new` has, too.
#[cold]
unsafe fn moved(
    allocator: &impl Allocator,
    start: NonNull<u8>,
    len: usize,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    let to = allocator.allocate(new)?;
    // SAFETY: the new memory is fresh, and both have at least `len` bytes.
    unsafe { ptr::copy_nonoverlapping(start.as_ptr(), to.cast().as_ptr(), len) };
    Ok(to)
}
