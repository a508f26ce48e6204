//! The error of a failed allocation.

use core::error::Error;
use core::fmt;

/// The error of an allocation that the arena's limit, the allocator or the size of the address
/// space refused.
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
    /// The requested bytes; `usize::MAX` if their number does not fit into a `usize`.
    requested: usize,
    /// The limit that was exceeded; `NO_LIMIT` if the allocator failed.
    limit: usize,
}

impl AllocError {
    /// Returns the error for a request that exceeds the limit of the arena.
    pub(crate) const fn over_limit(requested: usize, limit: usize) -> AllocError {
        AllocError { requested, limit }
    }

    /// Returns the error for a request that the allocator refused.
    pub(crate) const fn exhausted(requested: usize) -> AllocError {
        AllocError { requested, limit: NO_LIMIT }
    }

    /// Returns the error for a request that is larger than any object can be.
    pub(crate) const fn too_large() -> AllocError {
        AllocError { requested: usize::MAX, limit: NO_LIMIT }
    }

    /// Returns the number of requested bytes; `usize::MAX` for more than an object can have.
    pub const fn requested(&self) -> usize {
        self.requested
    }

    /// Returns the limit of the arena in bytes if the request exceeded it, and `None` if the
    /// allocator failed.
    pub const fn limit(&self) -> Option<usize> {
        if self.limit == NO_LIMIT { None } else { Some(self.limit) }
    }

    /// Panics with the message of this error, for the methods without `try_`.
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
