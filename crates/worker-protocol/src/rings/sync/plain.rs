//! The atomics of the standard library.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

/// Does nothing. In tests, the function with this name may stop the thread after a store to the
/// shared memory (see `counted`).
#[inline(always)]
pub(crate) fn after_store() {}
