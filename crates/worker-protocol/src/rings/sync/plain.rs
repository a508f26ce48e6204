//! The atomics of the standard library.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, fence};

pub(crate) use rookery_system::shared_wait;

/// Called after each store to the shared memory. Only the tests need it.
#[inline(always)]
pub(crate) fn after_store() {}
