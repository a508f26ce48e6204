//! One of the chains of chunks that the threads of a `SyncArena` are spread over.

use core::ptr::{self, NonNull};

use crate::layout::{self, Growth, Overflow};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use crate::sync::node::{self, HEADER, Node};

/// How many chains there are. Threads are numbered as they come, so up to this many never share one; each costs 128
/// bytes in the arena.
pub(crate) const SHARDS: usize = if cfg!(all(feature = "std", not(loom))) { 8 } else { 1 };

/// The shard of this thread.
#[cfg(all(feature = "std", not(loom)))]
#[inline]
pub(crate) fn index() -> usize {
    std::thread_local! {
        /// This thread's shard, or `SHARDS` before it has one.
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

/// The one shard there is.
#[cfg(not(all(feature = "std", not(loom))))]
#[inline]
pub(crate) fn index() -> usize {
    0
}

/// A chain of nodes and the place in it. On two cache lines of its own, as processors fetch them in pairs.
#[repr(align(128))]
pub(crate) struct Shard {
    /// The node whose cursor moves; null before the first allocation.
    current: AtomicPtr<Node>,
    head: AtomicPtr<Node>,
    /// Nominal size of the next node to be made.
    target: AtomicUsize,
    /// Bytes put aside that were too large for the next node, since the cursor last moved on.
    pressure: AtomicUsize,
    /// The decayed high-water mark of the chain. Changes only through `&mut`.
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

    /// Rewinds every node and frees those past the decayed high-water mark. Gives the bytes freed.
    ///
    /// # Safety
    /// - Nothing that was handed out is in use.
    pub(crate) unsafe fn reset(&mut self, growth: Growth) -> usize {
        let used = self.rewind();
        self.mark = layout::decayed(self.mark, used);
        self.pressure.store(0, Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { self.trim(growth) }
    }

    #[inline]
    pub(crate) fn current(&self) -> Option<&Node> {
        // SAFETY: null or a node, which stays until `&mut self`.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn head(&self) -> *mut Node {
        self.head.load(Ordering::Acquire)
    }

    /// The node after `current`, or the first.
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

    /// Decides where a request of `room` bytes goes that misses the node `current`, before `kept`.
    pub(crate) fn place(
        &self,
        current: Option<&Node>,
        kept: Option<&Node>,
        room: usize,
    ) -> Overflow {
        let next = kept.map_or(Growth::asked(self.target()), Node::size) - HEADER;
        match current {
            // A kept node that requests outgrew is entered and left again: it is too late to take it out of the chain.
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

    /// Links `fresh` after `current`. Whether it was this thread that did.
    pub(crate) fn append(&self, current: Option<&Node>, fresh: NonNull<Node>) -> bool {
        let slot = self.slot(current);
        slot.compare_exchange(ptr::null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Makes the node after `current`, which there is, the current one. The first thread does, the others find it done.
    pub(crate) fn move_on(&self, current: Option<&Node>) {
        let next = self.slot(current).load(Ordering::Acquire);
        let current = current.map_or(ptr::null_mut(), |node| ptr::from_ref(node).cast_mut());
        if self.current.compare_exchange(current, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.pressure.store(0, Ordering::Relaxed);
        }
    }

    /// Counts `room` bytes put aside for want of a larger node, as `ChunkSet::add_pressure` does.
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

    /// Bytes handed out.
    pub(crate) fn len(&self) -> usize {
        let last = self.current.load(Ordering::Acquire);
        let mut len = 0;
        // SAFETY: nodes stay until `&mut self`.
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

    /// Rewinds every node in use and gives the bytes up to the cursor, headers and abandoned tails included.
    fn rewind(&mut self) -> usize {
        let last = self.current.load(Ordering::Relaxed);
        let mut used = 0;
        if !last.is_null() {
            // SAFETY: nodes stay until they are freed by `trim` or by the arena.
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

    /// Frees the nodes past the mark and gives their bytes.
    ///
    /// # Safety
    /// - As for [`reset`](Shard::reset).
    unsafe fn trim(&mut self, growth: Growth) -> usize {
        let mut kept = 0;
        let mut last = None;
        // SAFETY: nodes stay until they are freed below.
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
        // SAFETY: taken out of the chain just now, and nothing in them is in use, as the caller vouches.
        unsafe { node::free_list(rest) }
    }
}
