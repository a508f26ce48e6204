//! Memory for a large body, in one piece, that the application can take over without copying.
//!
//! A body of 1 MB costs R a fresh mapping, 250 page faults and a copy when it becomes a vector of R's. A [`BodyBuffer`]
//! is lent instead, so that the vector is made over the bytes where they lie, and blocks that come back are used again.
//!
//! # Ground rules
//! - The bytes of a block are written while it has one owner and never again once it was lent.
//! - A block goes back to its [`BodyBufferPool`] when the exchange has let go of it and the borrower has returned it,
//!   whichever comes last; both may happen on any thread.

use std::alloc::{Layout, alloc, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// Bytes of returned blocks that are kept at most: what R lets pile up between two of its collections when it starts
/// (its first `R_VSize`), because it returns them in one go.
const KEPT_BYTES: usize = 64 << 20;

/// Blocks are made in multiples of this, so that bodies of about one length share them.
const GRAIN: usize = 64 << 10;

const ALIGN: usize = 64;

/// From the start of the allocation to the data: the head, and the data aligned as it is.
const DATA: usize = ALIGN;

/// What lies at the start of an allocation.
struct Head {
    /// The exchange's and the borrower's.
    owners: AtomicUsize,
    is_lent: AtomicBool,
    capacity: usize,
    home: Arc<BodyBufferPool>,
}

const _: () = assert!(size_of::<Head>() <= DATA);

/// The blocks of one server: those that came back are used again.
///
/// # Bounds
/// It keeps no more bytes than were taken between the last two returns, and never more than 64 MiB: a burst is
/// forgotten when the next blocks come back.
#[derive(Default)]
pub struct BodyBufferPool {
    free_list: Mutex<FreeList>,
}

#[derive(Default)]
struct FreeList {
    free: Vec<(usize, Allocation)>,
    bytes: usize,
    /// Bytes taken since blocks last came back, and between the two times before.
    taken: usize,
    taken_before: usize,
    is_returning: bool,
}

/// An allocation nobody uses. Its head is not initialised.
struct Allocation(NonNull<u8>);

// SAFETY: an address of plain memory with one owner.
unsafe impl Send for Allocation {}

impl BodyBufferPool {
    /// A block with room for `len` bytes, or `None` when there is no memory.
    pub fn take(self: &Arc<Self>, len: usize) -> Option<BodyBuffer> {
        let capacity = len.max(1).checked_next_multiple_of(GRAIN)?;
        let (capacity, start) = match self.reuse(capacity) {
            Some((capacity, allocation)) => (capacity, allocation.0),
            // SAFETY: the layout is not of size zero.
            None => (capacity, NonNull::new(unsafe { alloc(layout(capacity)?) })?),
        };
        let head = Head {
            owners: AtomicUsize::new(1),
            is_lent: AtomicBool::new(false),
            capacity,
            home: Arc::clone(self),
        };
        let block = start.cast::<Head>();
        // SAFETY: the allocation is ours, large enough and aligned for a head.
        unsafe { block.write(head) };
        Some(BodyBuffer { head: block, len: 0 })
    }

    fn reuse(&self, capacity: usize) -> Option<(usize, Allocation)> {
        // A forked child inherits a lock that may be held; nobody waits for it then.
        let mut free_list = self.free_list.try_lock().ok()?;
        if free_list.is_returning {
            free_list.is_returning = false;
            free_list.taken_before = free_list.taken;
            free_list.taken = 0;
        }
        free_list.taken = free_list.taken.saturating_add(capacity);
        // The block that came back last is the likeliest to be in the processor's cache.
        let at = free_list
            .free
            .iter()
            .rposition(|(size, _)| (capacity..=2 * capacity).contains(size))?;
        let found = free_list.free.swap_remove(at);
        free_list.bytes -= found.0;
        Some(found)
    }

    /// Keeps the allocation, or frees it.
    fn put_back(&self, capacity: usize, allocation: Allocation) {
        if let Ok(mut free_list) = self.free_list.try_lock() {
            free_list.is_returning = true;
            let bound = free_list.taken.max(free_list.taken_before).min(KEPT_BYTES);
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

    /// Bytes of blocks that are kept for the next.
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
        // SAFETY: made with this very layout, and nobody has the address any more.
        unsafe { dealloc(start.as_ptr(), layout) };
    }
}

/// A body's memory. The exchange that fills it owns it.
pub struct BodyBuffer {
    head: NonNull<Head>,
    len: usize,
}

// SAFETY: an address of plain memory that one owner writes to, and atomics.
unsafe impl Send for BodyBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for BodyBuffer {}

impl BodyBuffer {
    /// Copies `bytes` behind those that are there. `false` when there is no room for them, or when the block was lent.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let head = self.head();
        let fits = bytes.len() <= head.capacity - self.len;
        if !fits || head.is_lent.load(Ordering::Relaxed) {
            return false;
        }
        // SAFETY: `len + bytes.len()` is within the capacity; the block was not lent, so nobody else has the memory.
        unsafe {
            let end = data(self.head).add(self.len);
            end.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        self.len += bytes.len();
        true
    }

    /// Bytes there is room for.
    pub fn capacity(&self) -> usize {
        self.head().capacity
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes were written, and nobody writes them while the block is borrowed.
        unsafe { std::slice::from_raw_parts(data(self.head).as_ptr(), self.len) }
    }

    /// Whether [`lend`](Self::lend) would lend it.
    pub fn is_lendable(&self) -> bool {
        !self.head().is_lent.load(Ordering::Relaxed)
    }

    /// Lends the bytes, which are not to be written to, until [`BodyBuffer::give_back`]. Once per block: `None` afterwards.
    pub fn lend(&self) -> Option<NonNull<u8>> {
        let head = self.head();
        if head.is_lent.swap(true, Ordering::Relaxed) {
            return None;
        }
        head.owners.fetch_add(1, Ordering::Relaxed);
        Some(data(self.head))
    }

    /// Takes back what [`lend`](Self::lend) gave.
    ///
    /// # Safety
    /// - `start` came from `lend` and is given back once; nobody uses the memory afterwards.
    pub unsafe fn give_back(start: NonNull<u8>) {
        // SAFETY: the head lies that far in front of what `lend` gave.
        let head = unsafe { start.sub(DATA) }.cast::<Head>();
        // SAFETY: this owner is the borrower.
        unsafe { let_go(head) };
    }

    fn head(&self) -> &Head {
        // SAFETY: initialised by `take`, and alive while there is an owner.
        unsafe { self.head.as_ref() }
    }
}

impl Drop for BodyBuffer {
    fn drop(&mut self) {
        // SAFETY: this owner is the exchange.
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

/// One owner less.
///
/// # Safety
/// - The caller is one of the owners counted in the head, and is none afterwards.
unsafe fn let_go(head: NonNull<Head>) {
    // SAFETY: alive while the caller is an owner.
    if unsafe { head.as_ref() }.owners.fetch_sub(1, Ordering::Release) != 1 {
        return;
    }
    fence(Ordering::Acquire);
    // SAFETY: that was the last owner: nobody else reads the head, and it is forgotten with this.
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
    fn a_block_is_given_once_and_lives_until_both_have_let_go() {
        let blocks = Arc::new(BodyBufferPool::default());
        for exchange_first in [true, false] {
            let block = filled(&blocks, 1_000);
            let lent = block.lend().unwrap();
            assert!(block.lend().is_none());
            assert!(block.bytes().iter().enumerate().all(|(at, byte)| *byte == at as u8));
            let mut rest = Some(block);
            if exchange_first {
                rest = None;
                // SAFETY: the borrower still has it.
                assert_eq!(unsafe { lent.add(999).read() }, 999u16 as u8);
            }
            // SAFETY: lent above, used no more.
            unsafe { BodyBuffer::give_back(lent) };
            if let Some(block) = rest {
                assert_eq!(block.bytes()[999], 999u16 as u8);
            }
        }
        assert_eq!(blocks.kept(), GRAIN, "the one block, used twice");
    }

    #[test]
    fn nothing_is_written_behind_the_capacity_or_after_lending() {
        let blocks = Arc::new(BodyBufferPool::default());
        let mut block = blocks.take(GRAIN).unwrap();
        assert!(block.push(&vec![1; GRAIN]));
        assert!(!block.push(&[2]));
        let mut lent = filled(&blocks, 3);
        let start = lent.lend().unwrap();
        assert!(!lent.push(&[4]));
        assert_eq!(lent.bytes(), [0, 1, 2]);
        // SAFETY: lent above, used no more.
        unsafe { BodyBuffer::give_back(start) };
    }

    #[test]
    fn a_burst_is_forgotten() {
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
    fn a_lent_block_outlives_its_server() {
        let blocks = Arc::new(BodyBufferPool::default());
        let block = filled(&blocks, 5);
        let lent = block.lend().unwrap();
        drop((block, blocks));
        // SAFETY: still the borrower's; given back once.
        unsafe {
            assert_eq!(lent.add(4).read(), 4);
            BodyBuffer::give_back(lent);
        }
    }
}
