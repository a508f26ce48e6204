//! Counts the calls of the system's allocator.

use rookery_test_support::allocator::{CountingAllocator, thread};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the number of calls of malloc (and realloc) and of free that `work` makes on this
/// thread.
pub(crate) fn calls(work: impl FnOnce()) -> (u64, u64) {
    let before = (thread::allocations(), thread::frees());
    work();
    (thread::allocations() - before.0, thread::frees() - before.1)
}
