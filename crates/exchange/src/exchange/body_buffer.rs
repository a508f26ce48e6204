//! Buffers for large request bodies. Each contains a body in contiguous memory, which the
//! application can use without copying it.
//!
//! Copying a body of 1 MB into an R vector would cost a memory mapping, 250 page faults and the
//! copy itself. Instead, the server lends the [`BodyBuffer`] to the application, and the bytes of
//! the R vector are those of the buffer. Returned buffers are reused.
//!
//! # Ground rules
//! - The bytes of a buffer are written only before the buffer is lent to the application.
//! - A buffer returns to its [`BodyBufferPool`] once the exchange has dropped it and the
//!   application has given it back, in either order and on any thread.

use std::alloc::{Layout, alloc, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// The maximum total size in bytes of the unused body buffers that a pool keeps by default.
// R returns the buffers of all unused vectors at once, when it collects garbage. This is the size
// of the vectors that R may create before its first collection (the initial `R_VSize`).
const KEPT_BYTES: usize = 64 << 20;

/// The unit in bytes to which the capacity of a body buffer is rounded up, so that bodies of
/// similar lengths can use the same buffers.
const GRAIN: usize = 64 << 10;

const ALIGN: usize = 64;

/// The offset of a buffer's data from the start of its allocation. It is large enough for the
/// header in front of the data, and it keeps the data aligned.
const DATA: usize = ALIGN;

/// The header at the start of the allocation of a body buffer.
struct Head {
    /// The number of owners of the buffer. The exchange is one owner, and the application is
    /// another while the buffer is lent to it.
    owners: AtomicUsize,
    is_lent: AtomicBool,
    capacity: usize,
    home: Arc<BodyBufferPool>,
}

const _: () = assert!(size_of::<Head>() <= DATA);

/// The pool in which one server keeps unused buffers for request bodies.
///
/// # Limits
/// The pool keeps about as many bytes as requests have recently taken from it, and never more than
/// its limit, which is 64 MiB by default. After a burst of large bodies, it frees the memory that
/// is no longer needed.
pub struct BodyBufferPool {
    free_list: Mutex<FreeList>,
    /// The maximum total size in bytes of the unused buffers.
    most: usize,
}

impl Default for BodyBufferPool {
    fn default() -> BodyBufferPool {
        BodyBufferPool::with_limit(usize::MAX)
    }
}

#[derive(Default)]
struct FreeList {
    free: Vec<(usize, Allocation)>,
    bytes: usize,
    /// The total capacity in bytes of the body buffers that were taken from the pool in the current
    /// period. A new period begins when a buffer is taken after one has been returned.
    taken: usize,
    /// The total capacity in bytes of the body buffers that were taken from the pool in the period
    /// before the current one.
    taken_before: usize,
    /// Whether a buffer has been returned to the pool since the last one was taken from it.
    is_returning: bool,
}

/// An unused allocation for a body buffer, whose header is not initialized.
struct Allocation(NonNull<u8>);

// SAFETY: the value is the address of plain memory with one owner.
unsafe impl Send for Allocation {}

impl BodyBufferPool {
    /// Creates a pool whose unused buffers take at most `bytes` bytes, and at most 64 MiB.
    pub fn with_limit(bytes: usize) -> BodyBufferPool {
        BodyBufferPool { free_list: Mutex::default(), most: bytes.min(KEPT_BYTES) }
    }

    /// Takes a body buffer with a capacity of at least `len` bytes from the pool, or allocates one.
    /// Returns `None` if memory is exhausted.
    pub fn take(self: &Arc<Self>, len: usize) -> Option<BodyBuffer> {
        let capacity = len.max(1).checked_next_multiple_of(GRAIN)?;
        let (capacity, start) = match self.reuse(capacity) {
            Some((capacity, allocation)) => (capacity, allocation.0),
            // SAFETY: the size of the layout is not zero.
            None => (capacity, NonNull::new(unsafe { alloc(layout(capacity)?) })?),
        };
        let head = Head {
            owners: AtomicUsize::new(1),
            is_lent: AtomicBool::new(false),
            capacity,
            home: Arc::clone(self),
        };
        let block = start.cast::<Head>();
        // SAFETY: this function owns the allocation, which is large enough and suitably aligned for
        // a header.
        unsafe { block.write(head) };
        Some(BodyBuffer { head: block, len: 0 })
    }

    fn reuse(&self, capacity: usize) -> Option<(usize, Allocation)> {
        // In a forked child process the lock may be held by a thread that does not exist there, so
        // do not wait for it.
        let mut free_list = self.free_list.try_lock().ok()?;
        if free_list.is_returning {
            free_list.is_returning = false;
            free_list.taken_before = free_list.taken;
            free_list.taken = 0;
        }
        free_list.taken = free_list.taken.saturating_add(capacity);
        // The buffer that was returned last is the most likely to be in the processor's cache.
        let at = free_list
            .free
            .iter()
            .rposition(|(size, _)| (capacity..=2 * capacity).contains(size))?;
        let found = free_list.free.swap_remove(at);
        free_list.bytes -= found.0;
        Some(found)
    }

    /// Returns the allocation of a body buffer to the pool's free list, or frees it if the pool is
    /// full.
    fn put_back(&self, capacity: usize, allocation: Allocation) {
        if let Ok(mut free_list) = self.free_list.try_lock() {
            free_list.is_returning = true;
            let bound = free_list.taken.max(free_list.taken_before).min(self.most);
            while free_list.bytes > bound {
                let Some((size, extra)) = free_list.free.pop() else { break };
                free_list.bytes -= size;
                free(size, extra);
            }
            if free_list.bytes + capacity <= bound {
                free_list.bytes += capacity;
                free_list.free.push((capacity, allocation));
                return;
            }
        }
        free(capacity, allocation);
    }

    /// Returns the total capacity in bytes of the unused buffers in the pool.
    pub fn kept(&self) -> usize {
        self.free_list.lock().map_or(0, |free_list| free_list.bytes)
    }
}

impl Drop for BodyBufferPool {
    fn drop(&mut self) {
        if let Ok(free_list) = self.free_list.get_mut() {
            for (capacity, allocation) in free_list.free.drain(..) {
                free(capacity, allocation);
            }
        }
    }
}

impl fmt::Debug for BodyBufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyBufferPool({} bytes kept)", self.kept())
    }
}

fn layout(capacity: usize) -> Option<Layout> {
    Layout::from_size_align(DATA.checked_add(capacity)?, ALIGN).ok()
}

fn free(capacity: usize, Allocation(start): Allocation) {
    if let Some(layout) = layout(capacity) {
        // SAFETY: the memory was allocated with this layout, and nothing refers to it any more.
        unsafe { dealloc(start.as_ptr(), layout) };
    }
}

/// A buffer for the body of a request. The exchange (the request with its response) owns it.
pub struct BodyBuffer {
    head: NonNull<Head>,
    len: usize,
}

// SAFETY: the value is an address of plain memory with a single writer, and of atomics.
unsafe impl Send for BodyBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for BodyBuffer {}

impl BodyBuffer {
    /// Appends bytes to the body in this buffer. Returns false and changes nothing if the bytes do
    /// not fit or if the buffer has been lent to the application.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let head = self.head();
        let fits = bytes.len() <= head.capacity - self.len;
        if !fits || head.is_lent.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: `len + bytes.len()` is within the capacity. The buffer has not been lent, so
        // nothing else accesses the memory.
        unsafe {
            let end = data(self.head).add(self.len);
            end.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        self.len += bytes.len();
        true
    }

    /// Returns the capacity of the buffer in bytes.
    pub fn capacity(&self) -> usize {
        self.head().capacity
    }

    /// Returns the bytes of the body in this buffer.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes have been written, and nothing writes to them while the buffer is
        // borrowed.
        unsafe { std::slice::from_raw_parts(data(self.head).as_ptr(), self.len) }
    }

    /// Returns true if the buffer has not been lent to the application yet. It can be lent only
    /// once.
    pub fn is_lendable(&self) -> bool {
        !self.head().is_lent.load(Ordering::Relaxed)
    }

    /// Lends the bytes of the body to the application until [`BodyBuffer::give_back`]. The
    /// application must not write to them. Returns `None` if the buffer has been lent before.
    pub fn lend(&self) -> Option<NonNull<u8>> {
        let head = self.head();
        if head.is_lent.swap(true, Ordering::Relaxed) {
            return None;
        }
        head.owners.fetch_add(1, Ordering::Relaxed);
        Some(data(self.head))
    }

    /// Ends the loan of a body buffer that [`lend`](Self::lend) began.
    ///
    /// # Safety
    /// - `start` was returned by `lend`, is passed to this function once, and is not used
    ///   afterwards.
    pub unsafe fn give_back(start: NonNull<u8>) {
        // SAFETY: the header precedes the address that `lend` returned by this offset.
        let head = unsafe { start.sub(DATA) }.cast::<Head>();
        // SAFETY: the borrower is one of the counted owners.
        unsafe { let_go(head) };
    }

    fn head(&self) -> &Head {
        // SAFETY: `take` initialized the header, which is valid while there is an owner.
        unsafe { self.head.as_ref() }
    }
}

impl Drop for BodyBuffer {
    fn drop(&mut self) {
        // SAFETY: the exchange is one of the counted owners.
        unsafe { let_go(self.head) };
    }
}

impl fmt::Debug for BodyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BodyBuffer({} of {} bytes)", self.len, self.head().capacity)
    }
}

fn data(head: NonNull<Head>) -> NonNull<u8> {
    // SAFETY: every allocation is at least `DATA` bytes long.
    unsafe { head.cast::<u8>().add(DATA) }
}

/// Decrements the number of owners of a body buffer. If no owner remains, returns the buffer to its
/// pool.
///
/// # Safety
/// - The caller is one of the owners that the header counts, and gives up its ownership.
unsafe fn let_go(head: NonNull<Head>) {
    // SAFETY: the header is valid while the caller is an owner.
    if unsafe { head.as_ref() }.owners.fetch_sub(1, Ordering::Release) != 1 {
        return;
    }
    fence(Ordering::Acquire);
    // SAFETY: the caller was the last owner, so nothing else reads the header, which is moved out
    // here.
    let Head { capacity, home, .. } = unsafe { head.read() };
    home.put_back(capacity, Allocation(head.cast()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(blocks: &Arc<BodyBufferPool>, len: usize) -> BodyBuffer {
        let mut block = blocks.take(len).unwrap();
        for byte in 0..len {
            assert!(block.push(&[byte as u8]));
        }
        block
    }

    #[test]
    fn a_buffer_is_lent_once_and_lives_until_both_owners_release_it() {
        let blocks = Arc::new(BodyBufferPool::default());
        for exchange_first in [true, false] {
            let block = filled(&blocks, 1_000);
            let lent = block.lend().unwrap();
            assert!(block.lend().is_none());
            assert!(block.bytes().iter().enumerate().all(|(at, byte)| *byte == at as u8));
            let mut rest = Some(block);
            if exchange_first {
                rest = None;
                // SAFETY: the borrower has not returned the memory yet.
                assert_eq!(unsafe { lent.add(999).read() }, 999u16 as u8);
            }
            // SAFETY: the memory was lent above and is not used afterwards.
            unsafe { BodyBuffer::give_back(lent) };
            if let Some(block) = rest {
                assert_eq!(block.bytes()[999], 999u16 as u8);
            }
        }
        assert_eq!(blocks.kept(), GRAIN, "the one block, used twice");
    }

    #[test]
    fn rejects_writes_beyond_the_capacity_or_after_lending() {
        let blocks = Arc::new(BodyBufferPool::default());
        let mut block = blocks.take(GRAIN).unwrap();
        assert!(block.push(&vec![1; GRAIN]));
        assert!(!block.push(&[2]));
        let mut lent = filled(&blocks, 3);
        let start = lent.lend().unwrap();
        assert!(!lent.push(&[4]));
        assert_eq!(lent.bytes(), [0, 1, 2]);
        // SAFETY: the memory was lent above and is not used afterwards.
        unsafe { BodyBuffer::give_back(start) };
    }

    #[test]
    fn memory_of_a_burst_is_freed() {
        let blocks = Arc::new(BodyBufferPool::default());
        let burst: Vec<BodyBuffer> = (0..10).map(|_| filled(&blocks, 10)).collect();
        drop(burst);
        assert_eq!(blocks.kept(), 10 * GRAIN);
        for _ in 0..3 {
            drop(filled(&blocks, 10));
        }
        assert_eq!(blocks.kept(), GRAIN);
        assert!(blocks.take(usize::MAX).is_none());
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_limit() {
        let blocks = Arc::new(BodyBufferPool::with_limit(3 * GRAIN));
        let burst: Vec<BodyBuffer> = (0..10).map(|_| filled(&blocks, 10)).collect();
        drop(burst);
        assert_eq!(blocks.kept(), 3 * GRAIN);
    }

    #[test]
    fn a_lent_buffer_outlives_its_pool() {
        let blocks = Arc::new(BodyBufferPool::default());
        let block = filled(&blocks, 5);
        let lent = block.lend().unwrap();
        drop((block, blocks));
        // SAFETY: the borrower still owns the memory, and returns it once.
        unsafe {
            assert_eq!(lent.add(4).read(), 4);
            BodyBuffer::give_back(lent);
        }
    }
}
