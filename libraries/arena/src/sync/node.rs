//! The nodes (chunks of memory) of a `SyncArena`. A node has a header of atomics, followed by the
//! bytes that are allocated from it.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::num::NonZero;
use core::ptr::{self, NonNull};

use crate::layout::{self, CHUNK_ALIGN};
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The header at the beginning of a node (a chunk of a `SyncArena`'s memory).
#[repr(C, align(16))]
pub(crate) struct Node {
    /// The address at which this node (a chunk of memory) allocates next. Every thread that
    /// allocates from the node moves it.
    cursor: AtomicUsize,
    /// The end of this node (a chunk of memory). The pointers to all allocations in the node are
    /// derived from this pointer.
    end: NonNull<u8>,
    next: AtomicPtr<Node>,
    /// The number of allocations that got nodes (chunks) of their own in order to keep the unused
    /// end of this node for smaller allocations.
    misses: AtomicUsize,
    /// The next older node in the stack of the nodes that contain one large allocation each. The
    /// oldest node of the stack refers to itself. Null while this node contains no such allocation.
    below: AtomicPtr<Node>,
    size: usize,
}

/// The size in bytes of a node's header, which is the distance from the start of the node (a chunk
/// of memory) to its first allocation.
pub(crate) const HEADER: usize = size_of::<Node>();

const _: () = assert!(
    HEADER % CHUNK_ALIGN == 0 && HEADER < layout::MIN_CHUNK - layout::ALLOCATOR_OVERHEAD
        || cfg!(loom)
);

impl Node {
    /// Allocates from this node by moving its cursor. Returns `None` if `layout` does not fit.
    #[inline]
    pub(crate) fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let mut cursor = self.cursor.load(Ordering::Relaxed);
        loop {
            let fit = layout::fit(cursor, self.end.addr().get(), layout)?;
            match self.cursor.compare_exchange_weak(
                cursor,
                fit.end,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // SAFETY: the address is after a cursor, which is not null, and the addition
                    // does not wrap, because `end` is not before it.
                    let start = unsafe { NonZero::new_unchecked(fit.start) };
                    return Some(self.end.map_addr(|_| start));
                }
                Err(now) => cursor = now,
            }
        }
    }

    pub(crate) fn next(&self) -> &AtomicPtr<Node> {
        &self.next
    }

    pub(crate) fn misses(&self) -> &AtomicUsize {
        &self.misses
    }

    /// Returns true if this node serves one large allocation.
    pub(crate) fn is_taken(&self) -> bool {
        !self.below.load(Ordering::Relaxed).is_null()
    }

    /// Takes this spare node (a chunk kept for reuse) for one large allocation. Returns false if
    /// another thread took it first.
    pub(crate) fn take(&self) -> bool {
        let this = ptr::from_ref(self).cast_mut();
        self.below
            .compare_exchange(ptr::null_mut(), this, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the size of the node in bytes, with its header.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of bytes that were allocated from the node.
    pub(crate) fn used(&self) -> usize {
        self.cursor.load(Ordering::Relaxed) - self.data()
    }

    /// Returns the number of free bytes in the node.
    pub(crate) fn tail(&self) -> usize {
        self.end.addr().get() - self.cursor.load(Ordering::Relaxed)
    }

    /// Frees all allocations in the node. No other thread may use the node at the same time.
    pub(crate) fn rewind(&self) {
        self.cursor.store(self.data(), Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        self.below.store(ptr::null_mut(), Ordering::Relaxed);
    }

    fn data(&self) -> usize {
        ptr::from_ref(self).addr() + HEADER
    }
}

/// Returns the size of a node that is just large enough for allocations of `room` bytes, or `None`
/// if that is too large.
pub(crate) fn exact(room: usize) -> Option<usize> {
    layout::exact_chunk(room.checked_add(HEADER.saturating_sub(layout::HEADER))?)
}

/// Allocates a node of `size` bytes (including its header) from the global allocator. Returns
/// `None` if the allocator fails.
pub(crate) fn allocate(size: usize) -> Option<NonNull<Node>> {
    debug_assert!(size > HEADER);
    // SAFETY: the layout is not empty.
    let start = NonNull::new(unsafe { alloc(node_layout(size)) })?;
    // SAFETY: both lie in the block, the second at its end.
    let (data, end) = unsafe { (start.add(HEADER), start.add(size)) };
    let node = start.cast::<Node>();
    let header = Node {
        cursor: AtomicUsize::new(data.addr().get()),
        end,
        next: AtomicPtr::new(ptr::null_mut()),
        misses: AtomicUsize::new(0),
        below: AtomicPtr::new(ptr::null_mut()),
        size,
    };
    // SAFETY: the block is fresh, aligned and larger than the header.
    unsafe { node.write(header) };
    Some(node)
}

/// Frees a node (a chunk of memory) and returns its size in bytes.
///
/// # Safety
/// - The node came from [`allocate`], and neither it nor anything in it is used any more.
pub(crate) unsafe fn free(node: NonNull<Node>) -> usize {
    // SAFETY: the node is live.
    let size = unsafe { node.as_ref() }.size;
    // SAFETY: the node is live, and its header initialized. (Loom's atomics have something to
    // drop.)
    unsafe { node.drop_in_place() };
    // SAFETY: allocated with this layout.
    unsafe { dealloc(node.as_ptr().cast(), node_layout(size)) };
    size
}

/// Frees a list of nodes (chunks of memory) and returns the sum of their sizes in bytes.
///
/// # Safety
/// - Each node came from [`allocate`], and neither it nor anything in it is used any more.
pub(crate) unsafe fn free_list(first: *mut Node) -> usize {
    let (mut next, mut bytes) = (first, 0);
    while let Some(node) = NonNull::new(next) {
        // SAFETY: the node is live until it is freed below.
        next = unsafe { node.as_ref() }.next.load(Ordering::Relaxed);
        // SAFETY: the caller guarantees the conditions.
        bytes += unsafe { free(node) };
    }
    bytes
}

/// Returns an iterator over the nodes of a list, from `first` on.
///
/// # Safety
/// - The nodes stay live for `'a`.
pub(crate) unsafe fn iterate<'a>(first: *mut Node) -> impl Iterator<Item = &'a Node> {
    // SAFETY: the caller guarantees the conditions.
    let node = move |at: *mut Node| unsafe { at.as_ref() };
    core::iter::successors(node(first), move |at| node(at.next.load(Ordering::Acquire)))
}

/// Pushes a node onto the stack of the nodes that were made for one large allocation each since the
/// last reset. The stack is linked by `next`.
pub(crate) fn push_made(stack: &AtomicPtr<Node>, node: NonNull<Node>) {
    // SAFETY: the node is live and not in this stack yet, so its link belongs to this thread.
    push(stack, node, |first| unsafe { node.as_ref() }.next.store(first, Ordering::Relaxed));
}

/// Pushes a node onto the stack of the nodes that serve one large allocation each. The stack is
/// linked by `below`.
pub(crate) fn push_used(stack: &AtomicPtr<Node>, node: NonNull<Node>) {
    push(stack, node, |first| {
        let below = if first.is_null() { node.as_ptr() } else { first };
        // SAFETY: the node is live and taken by this thread, so its link belongs to this thread.
        unsafe { node.as_ref() }.below.store(below, Ordering::Relaxed);
    });
}

fn push(stack: &AtomicPtr<Node>, node: NonNull<Node>, link: impl Fn(*mut Node)) {
    let mut first = stack.load(Ordering::Relaxed);
    loop {
        link(first);
        match stack.compare_exchange_weak(
            first,
            node.as_ptr(),
            Ordering::Release,
            Ordering::Relaxed,
        ) {
            Ok(_) => return,
            Err(now) => first = now,
        }
    }
}

/// Returns an iterator over the stack of nodes that serve one large allocation each, the most
/// recent first.
///
/// # Safety
/// - The nodes stay live for `'a`.
pub(crate) unsafe fn iterate_used<'a>(latest: *mut Node) -> impl Iterator<Item = &'a Node> {
    // SAFETY: the caller guarantees the conditions.
    let first: Option<&'a Node> = unsafe { latest.as_ref() };
    core::iter::successors(first, |node| {
        let below = node.below.load(Ordering::Acquire);
        // SAFETY: the caller guarantees the conditions.
        if ptr::eq(below, *node) { None } else { unsafe { below.as_ref() } }
    })
}

/// Builds the new list of spare nodes (chunks kept for reuse) at a reset. Returns the list, and the
/// total size of the nodes in `used`.
///
/// The list begins with the nodes in `used`, in the order in which they were used. The same
/// allocations after the reset therefore find their former nodes. The nodes in `spares` that were
/// not used follow.
///
/// # Safety
/// - `used` is the stack of the nodes that served an allocation. Each node for one large allocation
///   is in `used` or in `spares`.
/// - Nothing else uses the nodes, and nothing in them is in use.
pub(crate) unsafe fn recycle(used: *mut Node, spares: *mut Node) -> (*mut Node, usize) {
    let mut left = Chain::new();
    let mut next = spares;
    // SAFETY: the caller guarantees the conditions.
    while let Some(node) = unsafe { next.as_ref() } {
        let here = next;
        next = node.next.load(Ordering::Relaxed);
        if !node.is_taken() {
            // SAFETY: `here` is live and in no list now.
            unsafe { left.push(here) };
        }
    }
    let (mut first, mut bytes) = (left.first, 0);
    let mut latest = used;
    // SAFETY: the caller guarantees the conditions.
    while let Some(node) = unsafe { latest.as_ref() } {
        let (here, below) = (latest, node.below.load(Ordering::Relaxed));
        node.rewind();
        node.next.store(first, Ordering::Relaxed);
        bytes += node.size;
        first = here;
        latest = if below == here { ptr::null_mut() } else { below };
    }
    (first, bytes)
}

/// Frees the spare nodes (chunks kept for reuse) above `mark`, the high-water mark.
/// `layout::is_surplus_dedicated` decides which these are. Returns the list of the remaining nodes
/// and the number of freed bytes.
///
/// # Safety
/// - The nodes form a list, nothing else uses them, and nothing in them is in use.
pub(crate) unsafe fn trim_spares(first: *mut Node, mark: usize) -> (*mut Node, usize) {
    let mut rest = 0;
    let mut last: Option<&Node> = None;
    let mut at = first;
    // SAFETY: the caller guarantees the conditions.
    while let Some(node) = unsafe { at.as_ref() } {
        if layout::is_surplus_dedicated(rest, node.size, mark) {
            break;
        }
        rest += node.size;
        last = Some(node);
        at = node.next.load(Ordering::Relaxed);
    }
    let kept = match last {
        Some(last) => {
            last.next.store(ptr::null_mut(), Ordering::Relaxed);
            first
        }
        None => ptr::null_mut(),
    };
    // SAFETY: the nodes were just removed from the list.
    (kept, unsafe { free_list(at) })
}

fn node_layout(size: usize) -> Layout {
    Layout::from_size_align(size, CHUNK_ALIGN).expect("`exact` bounds the size by isize::MAX - 16")
}

/// The first and the last node of a list that is being built.
struct Chain {
    first: *mut Node,
    last: *mut Node,
}

impl Chain {
    const fn new() -> Chain {
        Chain { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// Appends `node` to the list.
    ///
    /// # Safety
    /// - `node` is live and in no other list, and nothing else uses it.
    unsafe fn push(&mut self, node: *mut Node) {
        // SAFETY: the caller guarantees the conditions.
        unsafe { (*node).next.store(ptr::null_mut(), Ordering::Relaxed) };
        // SAFETY: the pointer is null or a node that was pushed before.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.store(node, Ordering::Relaxed),
            None => self.first = node,
        }
        self.last = node;
    }
}
