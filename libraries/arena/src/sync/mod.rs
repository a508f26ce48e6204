//! An arena from which several threads allocate at once, without locks. No thread ever waits for
//! another: if two threads find a chunk full, both allocate a new one, and the slower thread frees
//! its own again.
//!
//! # Ground rules
//! A node is a chunk of memory whose header contains atomics. A shard is a chain of nodes. Each
//! thread allocates from one of several shards. Threads that share a shard are slower.
//!
//! - Nodes are linked by `next`. Between resets, nodes are only appended to a shard, and the
//!   shard's `current` only moves forward. A pointer to a node is therefore valid until `reset`,
//!   `release` or drop, which need `&mut`.
//! - A thread allocates by moving the cursor of a node with a compare-and-swap. It then owns the
//!   bytes between the old and the new value. Another thread can access these bytes only through a
//!   reference that was sent to it, and sending synchronizes the threads. Relaxed ordering is
//!   therefore enough for the cursor.
//! - A new node becomes visible to other threads by the link to it, which is written with release
//!   ordering and read with acquire ordering.
//! - A large allocation gets a node of its own. `used` is the stack of these nodes, and `made` the
//!   stack of those that are new since the last reset. No node is removed from a stack before a
//!   reset, so there is no ABA problem.
//! - `spares` is a list of nodes kept for large allocations, and does not change between resets. A
//!   thread takes a spare by setting the spare's `below`, which was null. The taken node stays in
//!   the list, and is also pushed onto `used`.
//! - Counters, such as the number of reserved bytes, use relaxed ordering, because no other data is
//!   published through them. A chunk's bytes are counted against the limit before the chunk is
//!   allocated, so that threads cannot exceed the limit together.

mod node;
mod shard;

#[cfg(all(test, loom))]
mod model;

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};

use crate::error::{AllocError, NO_LIMIT};
use crate::layout::{self, DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK, Growth, Overflow};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sync::node::{HEADER, Node};
use crate::sync::shard::{SHARDS, Shard};
use crate::typed::{array, dangling, typed_methods};

/// The atomic types of `core`, or those of loom if the arena is tested with loom.
pub(crate) mod atomic {
    #[cfg(not(all(test, loom)))]
    pub(crate) use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    #[cfg(all(test, loom))]
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
}

/// An [`Arena`](crate::Arena) from which several threads allocate at once, without locks.
///
/// An allocation moves a cursor by a compare-and-swap, which is repeated if another thread was
/// faster. Threads rarely collide, because they are spread over eight chains of chunks (one chain
/// without the `std` feature). The price is the unused end of the last chunk of each chain. Because
/// of the atomic operation, an allocation still costs several times as much as from an
/// [`Arena`](crate::Arena), so give each thread an arena of its own where possible.
///
/// ```
/// use rookery_arena::SyncArena;
///
/// let arena = SyncArena::new();
/// let lengths = std::thread::scope(|scope| {
///     let texts = ["a", "bc", "def"].map(|text| scope.spawn(|| arena.alloc_str(text)));
///     texts.map(|text| text.join().map(|text| text.len()).unwrap_or(0))
/// });
/// assert_eq!(lengths, [1, 2, 3]);
/// ```
///
/// # Cost
/// | methods | cost |
/// |---|---|
/// | allocations of every kind | one compare-and-swap; now and then a new chunk |
/// | `reset` | a few stores for each chunk in use, and one free for each chunk not needed recently |
/// | `release`, drop | one free for each chunk |
/// | `len`, `is_empty`, `peak`, `chunks` | a walk over the chunks |
/// | `capacity`, `growth`, limits | constant |
///
/// # Panics
/// A method without `try_` in its name panics if the memory is not available.
pub struct SyncArena {
    shards: [Shard; SHARDS],
    /// The nodes (chunks) made for one large allocation each since the last reset, the most recent
    /// first.
    made: AtomicPtr<Node>,
    /// The nodes (chunks) that serve one large allocation each, the most recent first.
    used: AtomicPtr<Node>,
    /// The first spare node that may be free. Spare nodes are chunks for one large allocation each,
    /// which earlier resets have kept for reuse. All spare nodes before this one in the list are in
    /// use.
    spares: AtomicPtr<Node>,
    /// The number of bytes that the arena holds from the global allocator.
    reserved: AtomicUsize,
    /// 1 if the arena's limit has refused an allocation since the last reset, otherwise 0.
    refused: AtomicUsize,
    limit: usize,
    growth: Growth,
    /// The list of all spare nodes (chunks for one large allocation each, kept for reuse). `spares`
    /// points into this list.
    first_spare: *mut Node,
    dedicated_mark: usize,
    peak: usize,
}

// SAFETY: the arena owns its nodes and never accesses what was allocated in them.
unsafe impl Send for SyncArena {}
// SAFETY: every shared field is atomic or changes only through `&mut`; see the ground rules.
unsafe impl Sync for SyncArena {}

impl SyncArena {
    /// Makes an empty arena with the default [`Growth`]: the first chunk has 512 bytes, and each
    /// further chunk twice as many, up to 128 KiB.
    pub fn new() -> SyncArena {
        SyncArena::with_growth(Growth::new(DEFAULT_FIRST_CHUNK, DEFAULT_MAX_CHUNK))
    }

    /// Makes an empty arena whose first chunk has `size` bytes, as
    /// [`Arena::with_chunk_size`](crate::Arena::with_chunk_size) does.
    pub fn with_chunk_size(size: usize) -> SyncArena {
        SyncArena::with_growth(Growth::new(size, DEFAULT_MAX_CHUNK))
    }

    /// Makes an empty arena. The sizes of its chunks grow according to `growth`.
    pub fn with_growth(growth: Growth) -> SyncArena {
        SyncArena {
            shards: core::array::from_fn(|_| Shard::new(growth)),
            made: AtomicPtr::new(ptr::null_mut()),
            used: AtomicPtr::new(ptr::null_mut()),
            spares: AtomicPtr::new(ptr::null_mut()),
            reserved: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            limit: NO_LIMIT,
            growth,
            first_spare: ptr::null_mut(),
            dedicated_mark: 0,
            peak: 0,
        }
    }

    /// Frees all allocations of the arena, and keeps its memory for reuse, up to the high-water
    /// mark (the memory that it recently needed). A reset costs a few stores for each chunk in use.
    pub fn reset(&mut self) {
        self.peak = self.peak.max(self.len());
        let mut freed = 0;
        for shard in &mut self.shards {
            // SAFETY: `&mut self` guarantees that no allocation is in use.
            freed += unsafe { shard.reset(self.growth) };
        }
        // SAFETY: these lists belong to this arena, every node in `made` is in `used`, and `&mut
        // self` guarantees exclusive access.
        let (spares, used) =
            unsafe { node::recycle(self.used.load(Ordering::Relaxed), self.first_spare) };
        // Spares cannot be freed for the limit while other threads may access them, so this happens
        // now.
        let is_short = self.refused.swap(0, Ordering::Relaxed) == 1;
        self.dedicated_mark =
            if is_short { used } else { layout::decayed(self.dedicated_mark, used) };
        // SAFETY: as above, and nothing in a spare is in use.
        let (spares, trimmed) = unsafe { node::trim_spares(spares, self.dedicated_mark) };
        self.reserved.fetch_sub(freed + trimmed, Ordering::Relaxed);
        self.first_spare = spares;
        self.spares.store(spares, Ordering::Relaxed);
        self.made.store(ptr::null_mut(), Ordering::Relaxed);
        self.used.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Frees all allocations of the arena, and returns its memory to the allocator. The arena's
    /// limit and growth stay the same.
    pub fn release(&mut self) {
        let mut fresh = SyncArena::with_growth(self.growth);
        fresh.limit = self.limit;
        *self = fresh;
    }

    /// Sets the maximum number of bytes of memory that the arena may hold; `None` means no limit.
    /// If the arena already holds more, it keeps that memory.
    ///
    /// Unused chunks that are kept for reuse count towards the limit. Unlike an
    /// [`Arena`](crate::Arena), this arena does not free them to make space for an allocation. If
    /// the limit has refused an allocation, the next reset frees the unused chunks for large
    /// allocations.
    pub fn set_allocation_limit(&mut self, limit: Option<usize>) {
        self.limit = limit.unwrap_or(NO_LIMIT);
    }

    /// Returns the maximum number of bytes that the arena may hold from the global allocator, or
    /// `None` if there is no limit.
    pub fn allocation_limit(&self) -> Option<usize> {
        (self.limit != NO_LIMIT).then_some(self.limit)
    }

    /// Returns the number of bytes that were allocated from the arena since the last reset,
    /// including padding before aligned allocations. The method walks over all chunks in use. While
    /// other threads allocate, the result is approximate.
    pub fn len(&self) -> usize {
        let shared: usize = self.shards.iter().map(Shard::len).sum();
        // SAFETY: nodes of this arena exist until `&mut self`.
        let large = unsafe { node::iterate_used(self.used.load(Ordering::Acquire)) };
        shared + large.map(Node::used).sum::<usize>()
    }

    /// Returns true if nothing was allocated from the arena since the last reset.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that the arena holds from the global allocator: its chunks with
    /// their headers, including chunks kept for reuse.
    pub fn capacity(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Returns the largest number of bytes that were allocated at any [`reset`](SyncArena::reset)
    /// so far, or that are allocated now if they are more.
    pub fn peak(&self) -> usize {
        self.peak.max(self.len())
    }

    /// Returns the number of chunks that the arena holds.
    pub fn chunks(&self) -> usize {
        let heads = self.shards.iter().map(Shard::head);
        let lists = heads.chain([self.made.load(Ordering::Acquire), self.first_spare]);
        // SAFETY: nodes of this arena exist until `&mut self`, and a taken spare stays in its list.
        lists.map(|list| unsafe { node::iterate(list) }.count()).sum()
    }

    /// Returns the [`Growth`] that determines the sizes of the arena's chunks.
    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// Allocates uninitialized memory for `layout`. The memory is valid until the arena is reset,
    /// released or dropped.
    ///
    /// # Panics
    /// If the memory is not available.
    #[inline]
    #[track_caller]
    pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
        match self.try_alloc_layout(layout) {
            Ok(start) => start,
            Err(error) => error.raise(),
        }
    }

    /// Allocates uninitialized memory for `layout`, as [`alloc_layout`](SyncArena::alloc_layout)
    /// does, but returns an error instead of panicking.
    ///
    /// # Errors
    /// If the memory is not available.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let shard = &self.shards[shard::index()];
        match shard.current().and_then(|node| node.bump(layout)) {
            Some(start) => Ok(start),
            None => self.alloc_slow(shard, layout),
        }
    }

    #[inline]
    fn try_alloc_array<T>(&self, len: usize) -> Result<NonNull<T>, AllocError> {
        if size_of::<T>() == 0 {
            return Ok(NonNull::dangling());
        }
        self.try_alloc_layout(array::<T>(len)?).map(NonNull::cast)
    }

    #[inline]
    fn try_alloc_one<T>(&self) -> Result<NonNull<T>, AllocError> {
        if size_of::<T>() == 0 {
            return Ok(NonNull::dangling());
        }
        self.try_alloc_layout(Layout::new::<T>()).map(NonNull::cast)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, shard: &Shard, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let room = layout::room_for(layout);
        loop {
            let current = shard.current();
            if let Some(start) = current.and_then(|node| node.bump(layout)) {
                return Ok(start);
            }
            let kept = shard.after(current);
            match shard.place(current, kept, room) {
                Overflow::Dedicated => {
                    return self.serve_dedicated(shard, layout, room, kept.is_some());
                }
                Overflow::Next => self.advance(shard, current, layout, room)?,
            }
        }
    }

    /// Moves `shard`, a chain of nodes (chunks), from the node `current` to the next one. If that
    /// node does not exist, allocates it with space for at least `room` bytes. `layout` is the
    /// requested allocation, whose size an error reports.
    fn advance(
        &self,
        shard: &Shard,
        current: Option<&Node>,
        layout: Layout,
        room: usize,
    ) -> Result<(), AllocError> {
        if shard.after(current).is_none() {
            let exact = node::exact(room).ok_or(AllocError::too_large())?;
            let nominal = shard.target();
            let fresh = self.make(Growth::asked(nominal), exact, layout)?;
            if shard.append(current, fresh) {
                shard.set_target(self.growth.after(nominal));
            } else {
                // SAFETY: another thread was faster, and no thread has seen this node.
                let size = unsafe { node::free(fresh) };
                self.reserved.fetch_sub(size, Ordering::Relaxed);
            }
        }
        shard.move_on(current);
        Ok(())
    }

    /// Makes a node (a chunk) of `wanted` bytes, or of fewer bytes if the arena's limit requires
    /// it. If the allocator cannot provide this size, the node has `exact` bytes. `layout` is the
    /// requested allocation, whose size an error reports.
    fn make(
        &self,
        wanted: usize,
        exact: usize,
        layout: Layout,
    ) -> Result<NonNull<Node>, AllocError> {
        let mut reserved = self.reserved.load(Ordering::Relaxed);
        let size = loop {
            let allowed = self.limit.saturating_sub(reserved) & !(layout::CHUNK_ALIGN - 1);
            if exact > allowed {
                self.refused.store(1, Ordering::Relaxed);
                return Err(AllocError::over_limit(layout.size(), self.limit));
            }
            let size = wanted.min(allowed).max(exact);
            match self.reserved.compare_exchange_weak(
                reserved,
                reserved + size,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break size,
                Err(now) => reserved = now,
            }
        };
        if let Some(node) = node::allocate(size) {
            return Ok(node);
        }
        match node::allocate(exact) {
            Some(node) => {
                self.reserved.fetch_sub(size - exact, Ordering::Relaxed);
                Ok(node)
            }
            None => {
                self.reserved.fetch_sub(size, Ordering::Relaxed);
                Err(AllocError::exhausted(layout.size()))
            }
        }
    }

    /// Gives an allocation a node (a chunk) of its own: one kept for reuse, or a new one.
    fn serve_dedicated(
        &self,
        shard: &Shard,
        layout: Layout,
        room: usize,
        is_kept: bool,
    ) -> Result<NonNull<u8>, AllocError> {
        let start = match self.take_spare(room) {
            Some(node) => {
                // SAFETY: the node belongs to this arena, and only this thread has taken it.
                let start = unsafe { node.as_ref() }.bump(layout);
                node::push_used(&self.used, node);
                start
            }
            None => {
                let exact = node::exact(room).ok_or(AllocError::too_large())?;
                let node = self.make(exact, exact, layout)?;
                // SAFETY: no other thread has seen the node yet.
                let start = unsafe { node.as_ref() }.bump(layout);
                node::push_made(&self.made, node);
                node::push_used(&self.used, node);
                start
            }
        };
        if room <= self.growth.largest_shared() {
            shard.add_pressure(room, is_kept, self.growth);
        }
        Ok(start.expect("a node made or chosen with room for the request"))
    }

    /// Takes a spare node (a chunk kept for reuse) for an allocation of `room` bytes. Tries the
    /// first few free ones, and returns `None` if none of them fits.
    fn take_spare(&self, room: usize) -> Option<NonNull<Node>> {
        // Pointers instead of references, because the used nodes become a list of nodes that are
        // freed later.
        let mut at = self.spares.load(Ordering::Relaxed);
        let mut looked_at = 0;
        while let Some(here) = NonNull::new(at) {
            // SAFETY: the list of spares does not change until `&mut self`.
            let node = unsafe { here.as_ref() };
            at = node.next().load(Ordering::Relaxed);
            if node.is_taken() {
                // The taken nodes at the front of the list are skipped from now on.
                if here.as_ptr() == self.spares.load(Ordering::Relaxed) {
                    let _ = self.spares.compare_exchange(
                        here.as_ptr(),
                        at,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                continue;
            }
            if looked_at == SPARES_LOOKED_AT {
                return None;
            }
            looked_at += 1;
            if layout::suits(node.size() - HEADER, room) && node.take() {
                return Some(here);
            }
        }
        None
    }
}

typed_methods!(SyncArena);

impl Drop for SyncArena {
    fn drop(&mut self) {
        let heads = self.shards.iter().map(Shard::head);
        for list in heads.chain([self.made.load(Ordering::Acquire), self.first_spare]) {
            // SAFETY: these lists contain each node once, and nothing borrows from a dropped arena.
            unsafe { node::free_list(list) };
        }
    }
}

impl Default for SyncArena {
    fn default() -> SyncArena {
        SyncArena::new()
    }
}

impl fmt::Debug for SyncArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncArena")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// The maximum number of spare nodes (chunks kept for reuse) that are tried for an allocation.
const SPARES_LOOKED_AT: usize = 8;
