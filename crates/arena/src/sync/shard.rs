//! A shard: one of the chains of chunks over which the threads of a `SyncArena` are spread.

use core::ptr::{self, NonNull};

use crate::layout::{self, Growth, Overflow};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sync::node::{self, HEADER, Node};

/// The number of chains. Threads are numbered in the order of their first allocation, so up to this
/// many threads never share a chain. Each chain costs 128 bytes in the arena.
pub(crate) const SHARDS: usize = if cfg!(all(feature = "std", not(loom))) { 8 } else { 1 };

/// Returns the shard of this thread.
#[cfg(all(feature = "std", not(loom)))]
#[inline]
pub(crate) fn index() -> usize {
    std::thread_local! {
        /// The shard of this thread, or `SHARDS` before it has one.
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

/// Returns the only shard.
#[cfg(not(all(feature = "std", not(loom))))]
#[inline]
pub(crate) fn index() -> usize {
    0
}

/// A chain of nodes and the position in it. It has two cache lines of its own, because processors
/// fetch them in pairs.
#[repr(align(128))]
pub(crate) struct Shard {
    /// The node whose cursor moves; null before the first allocation.
    current: AtomicPtr<Node>,
    head: AtomicPtr<Node>,
    /// The nominal size of the next node.
    target: AtomicUsize,
    /// The bytes of requests that got nodes of their own because the next node is too small, since
    /// the cursor entered the current node.
    pressure: AtomicUsize,
    /// The decayed high-water mark of the chain. It changes only through `&mut`.
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

    /// Rewinds every node and frees those above the decayed high-water mark. Returns the freed
    /// bytes.
    ///
    /// # Safety
    /// - No allocation is in use.
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

    /// Returns the node after `current`, or the first node.
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

    /// Decides about a request of `room` bytes that does not fit into the node `current`. `kept` is
    /// the next node.
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

    /// Links `fresh` after `current`. Returns true if this thread has linked its node.
    pub(crate) fn append(&self, current: Option<&Node>, fresh: NonNull<Node>) -> bool {
        let slot = self.slot(current);
        slot.compare_exchange(ptr::null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Makes the node after `current`, which must exist, the current one. The first thread does
    /// this, and the others find it done.
    pub(crate) fn move_on(&self, current: Option<&Node>) {
        let next = self.slot(current).load(Ordering::Acquire);
        let current = current.map_or(ptr::null_mut(), |node| ptr::from_ref(node).cast_mut());
        if self.current.compare_exchange(current, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.pressure.store(0, Ordering::Relaxed);
        }
    }

    /// Counts `room` bytes that got a node of their own because the next node is too small, as
    /// `ChunkSet::add_pressure` does.
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

    /// Returns the number of allocated bytes.
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

    /// Rewinds every node in use and returns the bytes up to the cursor, with headers and abandoned
    /// tails.
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

    /// Frees the nodes above the mark and returns their bytes.
    ///
    /// # Safety
    /// - As for [`reset`](Shard::reset).
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
