//! A global allocator that counts allocations, for tests of how much memory code allocates.
//!
//! ```
//! use rookery_test_support::allocator::{self, CountingAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = allocator::thread::allocations();
//! drop(Box::new(1));
//! assert_eq!(allocator::thread::allocations() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, extended by counters of allocations and freed blocks. A reallocation
/// counts as one allocation.
#[derive(Debug)]
pub struct CountingAllocator;

// SAFETY: Each call is passed to the system's allocator unchanged. Counting accesses only atomics
// and thread-local cells that have no destructor, so it does not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        thread::on_alloc(layout.size());
        process::on_alloc(layout.size());
        // SAFETY: The caller meets the requirements, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        thread::on_free(layout.size());
        process::on_free(layout.size());
        // SAFETY: The caller meets the requirements, which are the same.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        thread::on_realloc(layout.size(), size);
        process::on_realloc(layout.size(), size);
        // SAFETY: The caller meets the requirements, which are the same.
        unsafe { System.realloc(start, layout, size) }
    }
}

pub mod thread {
    //! The counters of the current thread.

    use std::cell::Cell;

    thread_local! {
        static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
        static FREES: Cell<u64> = const { Cell::new(0) };
        static LIVE: Cell<isize> = const { Cell::new(0) };
    }

    /// Returns the number of allocations that the current thread has made.
    pub fn allocations() -> u64 {
        ALLOCATIONS.get()
    }

    /// Returns the number of memory blocks that the current thread has freed.
    pub fn frees() -> u64 {
        FREES.get()
    }

    /// Returns the number of bytes that the current thread has allocated, minus those that it has
    /// freed. The result is negative if the thread has freed memory that other threads allocated.
    pub fn live_bytes() -> isize {
        LIVE.get()
    }

    pub(super) fn on_alloc(size: usize) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE.set(LIVE.get().wrapping_add_unsigned(size));
    }

    pub(super) fn on_free(size: usize) {
        FREES.set(FREES.get() + 1);
        LIVE.set(LIVE.get().wrapping_sub_unsigned(size));
    }

    pub(super) fn on_realloc(before: usize, after: usize) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE.set(LIVE.get().wrapping_sub_unsigned(before).wrapping_add_unsigned(after));
    }
}

pub mod process {
    //! The counters of all threads.

    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use crate::TEST_TIMEOUT;

    static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
    static REQUESTED: AtomicUsize = AtomicUsize::new(0);
    static LIVE: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static IS_EXCLUDED: Cell<bool> = const { Cell::new(false) };
    }

    /// Returns the number of allocations that all threads have made, except those that called
    /// [`exclude_current_thread`].
    pub fn allocations() -> u64 {
        ALLOCATIONS.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that all threads have requested from the allocator, except
    /// threads that called [`exclude_current_thread`].
    pub fn requested_bytes() -> usize {
        REQUESTED.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that all threads have allocated and not freed. Threads that
    /// called [`exclude_current_thread`] count as well.
    pub fn live_bytes() -> usize {
        LIVE.load(Ordering::Relaxed)
    }

    /// Returns [`live_bytes`] once the number has not changed for 300 ms.
    ///
    /// # Panics
    ///
    /// Panics if the number still changes after [`TEST_TIMEOUT`].
    pub fn settled_live_bytes() -> usize {
        let until = Instant::now() + TEST_TIMEOUT;
        let mut seen = (live_bytes(), Instant::now());
        while seen.1.elapsed() < Duration::from_millis(300) {
            assert!(Instant::now() < until, "the heap does not come to rest");
            std::thread::sleep(Duration::from_millis(5));
            let live = live_bytes();
            if live != seen.0 {
                seen = (live, Instant::now());
            }
        }
        seen.0
    }

    /// Excludes the current thread from the counters [`allocations`] and [`requested_bytes`] from
    /// now on.
    pub fn exclude_current_thread() {
        IS_EXCLUDED.set(true);
    }

    pub(super) fn on_alloc(size: usize) {
        count(size);
        LIVE.fetch_add(size, Ordering::Relaxed);
    }

    pub(super) fn on_free(size: usize) {
        LIVE.fetch_sub(size, Ordering::Relaxed);
    }

    pub(super) fn on_realloc(before: usize, after: usize) {
        count(after);
        LIVE.fetch_add(after, Ordering::Relaxed);
        LIVE.fetch_sub(before, Ordering::Relaxed);
    }

    fn count(size: usize) {
        if !IS_EXCLUDED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            REQUESTED.fetch_add(size, Ordering::Relaxed);
        }
    }
}
