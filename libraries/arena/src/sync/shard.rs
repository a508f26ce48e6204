//! A shard of a `SyncArena`: one of its chains of chunks. Each thread allocates from one shard, so
//! that threads rarely collide.

use core::ptr::{self, NonNull};

use crate::layout::{self, Growth, Overflow};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sync::node::{self, HEADER, Node};

/// The number of shards (chains of chunks) in a `SyncArena`. Threads are assigned to the shards in
/// turn, at their first allocation. Each shard costs 128 bytes in the arena.
pub(crate) const SHARDS: usize = if cfg!(all(feature = "std", not(loom))) { 8 } else { 1 };

/// Returns the index of the shard (a chain of chunks) from which this thread allocates.
#[cfg(all(feature = "std", not(loom)))]
#[inline]
pub(crate) fn index() -> usize {
    std::thread_local! {
        /// The index of the shard (a chain of chunks) from which this thread allocates, or `SHARDS`
        /// before its first allocation.
        static INDEX: core::cell::Cell<usize> = const { core::cell::Cell::new(SHARDS) };
    }

    #[cold]
    fn choose() -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let index = THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS;
        INDEX.set(index);
        index
    }

    let index = INDEX.get();
    if index < SHARDS { index } else { choose() }
}

/// Returns the index of the only shard (chain of chunks).
#[cfg(not(all(feature = "std", not(loom))))]
#[inline]
pub(crate) fn index() -> usize {
    0
}

/// A shard of a `SyncArena`: a chain of nodes (chunks) and the position in the chain. It has two
/// cache lines of its own, because processors fetch cache lines in pairs.
#[repr(align(128))]
pub(crate) struct Shard {
    /// The node (chunk) from which the shard allocates now, or null before the first allocation.
    current: AtomicPtr<Node>,
    head: AtomicPtr<Node>,
    /// The nominal size in bytes of the next node (chunk) that the shard makes.
    target: AtomicUsize,
    /// The total size in bytes of recent allocations that got nodes (chunks) of their own although
    /// larger shared nodes could contain them. When this sum reaches the size of the next node,
    /// that node is made larger, and the sum is set to zero. The sum is also set to zero when the
    /// shard moves to another node.
    pressure: AtomicUsize,
    /// The high-water mark of the chain in bytes: the memory that it recently needed between two
    /// resets. It is not atomic, because it changes only through `&mut`.
    mark: usize,
}

impl Shard {
    pub(crate) fn new(growth: Growth) -> Shard {
        Shard {
            current: AtomicPtr::new(ptr::null_mut()),
            head: AtomicPtr::new(ptr::null_mut()),
            target: AtomicUsize::new(growth.first()),
            pressure: AtomicUsize::new(0),
            mark: 0,
        }
    }

    /// Frees all allocations in the shard's nodes (chunks), and frees the nodes above the
    /// high-water mark. Returns the number of freed bytes.
    ///
    /// # Safety
    /// - No allocation from the shard is in use.
    pub(crate) unsafe fn reset(&mut self, growth: Growth) -> usize {
        let used = self.rewind();
        self.mark = layout::decayed(self.mark, used);
        self.pressure.store(0, Ordering::Relaxed);
        // SAFETY: the caller guarantees the conditions.
        unsafe { self.trim(growth) }
    }

    #[inline]
    pub(crate) fn current(&self) -> Option<&Node> {
        // SAFETY: the pointer is null or a node, which exists until `&mut self`.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn head(&self) -> *mut Node {
        self.head.load(Ordering::Acquire)
    }

    /// Returns the node (chunk) that follows `current` in the shard's chain, or the first node if
    /// `current` is `None`.
    pub(crate) fn after(&self, current: Option<&Node>) -> Option<&Node> {
        // SAFETY: as in `current`.
        unsafe { self.slot(current).load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn target(&self) -> usize {
        self.target.load(Ordering::Relaxed)
    }

    pub(crate) fn set_target(&self, nominal: usize) {
        self.target.store(nominal, Ordering::Relaxed);
    }

    /// Decides which node (chunk) serves an allocation of `room` bytes that does not fit into the
    /// node `current`. `kept` is the next node, if there is one.
    pub(crate) fn place(
        &self,
        current: Option<&Node>,
        kept: Option<&Node>,
        room: usize,
    ) -> Overflow {
        let next = kept.map_or(Growth::asked(self.target()), Node::size) - HEADER;
        match current {
            // A kept node that is too small for the requests is entered and left again, because it
            // cannot be removed from the chain here.
            Some(_) if kept.is_some() && self.pressure.load(Ordering::Relaxed) >= next => {
                Overflow::Next
            }
            Some(node) => {
                layout::place(room, node.tail(), next, node.misses().load(Ordering::Relaxed))
            }
            None if room <= next || kept.is_some() => Overflow::Next,
            None => Overflow::Dedicated,
        }
    }

    /// Links the node `fresh` after the node `current`. Returns false if another thread has linked
    /// a node there first.
    pub(crate) fn append(&self, current: Option<&Node>, fresh: NonNull<Node>) -> bool {
        let slot = self.slot(current);
        slot.compare_exchange(ptr::null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Makes the node after `current` the shard's current node. That node must exist. If several
    /// threads call this method at once, only the first call has an effect.
    pub(crate) fn move_on(&self, current: Option<&Node>) {
        let next = self.slot(current).load(Ordering::Acquire);
        let current = current.map_or(ptr::null_mut(), |node| ptr::from_ref(node).cast_mut());
        if self.current.compare_exchange(current, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.pressure.store(0, Ordering::Relaxed);
        }
    }

    /// Counts an allocation of `room` bytes that got a node (chunk) of its own although a larger
    /// shared node could contain it. When the counted bytes would have filled the shard's next
    /// node, that node is made larger. If the next node exists already (`is_kept`), its size cannot
    /// change.
    pub(crate) fn add_pressure(&self, room: usize, is_kept: bool, growth: Growth) {
        if let Some(node) = self.current() {
            node.misses().fetch_add(1, Ordering::Relaxed);
        }
        let pressure = self.pressure.fetch_add(room, Ordering::Relaxed) + room;
        let target = self.target();
        if !is_kept && pressure >= target {
            self.set_target(growth.after(target));
            self.pressure.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes that were allocated from the shard.
    pub(crate) fn len(&self) -> usize {
        let last = self.current.load(Ordering::Acquire);
        let mut len = 0;
        // SAFETY: nodes exist until `&mut self`.
        for node in unsafe { node::iterate(self.head()) } {
            len += node.used();
            if ptr::eq(node, last) {
                break;
            }
        }
        len
    }

    fn slot<'a>(&'a self, current: Option<&'a Node>) -> &'a AtomicPtr<Node> {
        current.map_or(&self.head, Node::next)
    }

    /// Frees all allocations in the shard's nodes (chunks). Returns the number of bytes that the
    /// nodes occupied up to the cursor, including headers and unused ends.
    fn rewind(&mut self) -> usize {
        let last = self.current.load(Ordering::Relaxed);
        let mut used = 0;
        if !last.is_null() {
            // SAFETY: nodes exist until `trim` or the arena frees them.
            for node in unsafe { node::iterate(self.head()) } {
                let is_last = ptr::eq(node, last);
                used += if is_last { HEADER + node.used() } else { node.size() };
                node.rewind();
                if is_last {
                    break;
                }
            }
        }
        self.current.store(self.head(), Ordering::Relaxed);
        used
    }

    /// Frees the shard's nodes (chunks) above the high-water mark, and returns the number of freed
    /// bytes.
    ///
    /// # Safety
    /// - No allocation from the shard is in use.
    unsafe fn trim(&mut self, growth: Growth) -> usize {
        let mut kept = 0;
        let mut last = None;
        // SAFETY: nodes exist until they are freed below.
        for node in unsafe { node::iterate(self.head()) } {
            if layout::is_surplus(kept, self.mark) {
                break;
            }
            kept += node.size();
            last = Some(node);
        }
        let Some(last) = last else { return 0 };
        let rest = last.next().load(Ordering::Relaxed);
        if rest.is_null() {
            return 0;
        }
        self.set_target(growth.after(last.size() + layout::ALLOCATOR_OVERHEAD));
        last.next().store(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: the nodes were just removed from the chain, and the caller guarantees that
        // nothing in them is in use.
        unsafe { node::free_list(rest) }
    }
}
