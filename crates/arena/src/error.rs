//! The one way an allocation fails.

use core::error::Error;
use core::fmt;

/// An allocation that the arena's limit, the allocator or the size of the address space refused.
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
    /// Bytes asked for; `usize::MAX` when their number does not fit in a `usize`.
    requested: usize,
    /// The limit that refused; `NO_LIMIT` when the allocator did.
    limit: usize,
}

impl AllocError {
    /// Refused by the limit of the arena.
    pub(crate) const fn over_limit(requested: usize, limit: usize) -> AllocError {
        AllocError { requested, limit }
    }

    /// Refused by the allocator.
    pub(crate) const fn exhausted(requested: usize) -> AllocError {
        AllocError { requested, limit: NO_LIMIT }
    }

    /// More bytes than an object can have.
    pub(crate) const fn too_large() -> AllocError {
        AllocError { requested: usize::MAX, limit: NO_LIMIT }
    }

    /// Bytes asked for, `usize::MAX` for more than an object can have.
    pub const fn requested(&self) -> usize {
        self.requested
    }

    /// The limit of the arena in bytes, when that is what refused; `None` when the allocator did.
    pub const fn limit(&self) -> Option<usize> {
        if self.limit == NO_LIMIT { None } else { Some(self.limit) }
    }

    /// Panics with the message of this error: the end of every method without a `try_` twin's name.
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

/// Stands for "no limit" in an arena and in its errors.
pub(crate) const NO_LIMIT: usize = usize::MAX;
