//! The error for a failed allocation from an arena.

use core::error::Error;
use core::fmt;

/// The error for a failed allocation from an arena. The allocation exceeded the arena's limit or
/// the size of the address space, or the global allocator failed.
///
/// ```
/// use rookery_arena::Arena;
///
/// let mut arena = Arena::new();
/// arena.set_allocation_limit(Some(1024));
/// let error = arena.try_alloc_slice_fill(4096, 0u8).unwrap_err();
/// assert_eq!((error.requested(), error.limit()), (4096, Some(1024)));
/// assert_eq!(error.to_string(), "cannot allocate 4096 bytes: the arena may hold at most 1024");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocError {
    /// The number of bytes that were requested, or `usize::MAX` if no object can be that large.
    requested: usize,
    /// The arena's limit in bytes that the allocation exceeded, or `NO_LIMIT` if the global
    /// allocator failed.
    limit: usize,
}

impl AllocError {
    /// Returns the error for an allocation that exceeds the limit of the arena.
    pub(crate) const fn over_limit(requested: usize, limit: usize) -> AllocError {
        AllocError { requested, limit }
    }

    /// Returns the error for an allocation that the global allocator refused.
    pub(crate) const fn exhausted(requested: usize) -> AllocError {
        AllocError { requested, limit: NO_LIMIT }
    }

    /// Returns the error for an allocation that is larger than any object can be.
    pub(crate) const fn too_large() -> AllocError {
        AllocError { requested: usize::MAX, limit: NO_LIMIT }
    }

    /// Returns the number of bytes that the failed allocation requested, or `usize::MAX` if no
    /// object can be that large.
    pub const fn requested(&self) -> usize {
        self.requested
    }

    /// Returns the arena's limit in bytes if the allocation exceeded it, or `None` if the global
    /// allocator failed.
    pub const fn limit(&self) -> Option<usize> {
        if self.limit == NO_LIMIT { None } else { Some(self.limit) }
    }

    /// Panics with the message of this error. The allocation methods without `try_` in their name
    /// use it.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn raise(self) -> ! {
        panic!("arena: {self}")
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.requested, self.limit()) {
            (usize::MAX, _) => f.write_str("cannot allocate more bytes than an object can have"),
            (bytes, Some(limit)) => {
                write!(f, "cannot allocate {bytes} bytes: the arena may hold at most {limit}")
            }
            (bytes, None) => {
                write!(f, "cannot allocate {bytes} bytes: the allocator has no memory left")
            }
        }
    }
}

impl Error for AllocError {}

/// The value that means "no limit" in an arena and in its errors.
pub(crate) const NO_LIMIT: usize = usize::MAX;
