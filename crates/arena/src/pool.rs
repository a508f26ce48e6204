//! Arenas kept between uses, by what they are used for.
//!
//! A pool belongs to one thread and takes no lock. Each key remembers the decayed high-water mark of its uses; an arena
//! made for the key has a first chunk of that size, so that a use that is like the others takes one chunk and one malloc.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::arena::Arena;
use crate::layout::{self, Growth};

/// Arenas by key (a route, a kind of work), for reuse.
///
/// ```
/// use rookery_arena::Pool;
///
/// let pool = Pool::new();
/// for _ in 0..3 {
///     let arena = pool.take("/search");
///     arena.alloc_slice_fill(10_000, 0u8);
/// } // back into the pool, reset
/// assert_eq!(pool.arenas(), 1);
/// ```
///
/// # Cost
/// `take` and `high_water` compare the key with those remembered (at most [`max_keys`](PoolLimits::max_keys)), the latest
/// first. Bringing an arena back costs its `reset`, and a drop where it passes a limit. `bytes`, `arenas` and `keys` are
/// constant; `clear` frees every arena that waits.
///
/// # Limits
/// At most [`max_bytes`](PoolLimits::max_bytes) and [`max_arenas`](PoolLimits::max_arenas) wait in the pool; an arena that would
/// pass them is dropped when it comes back. At most [`max_keys`](PoolLimits::max_keys) keys are remembered; a further one
/// takes the place of the one not used for longest.
pub struct Pool<K> {
    shelves: RefCell<Shelves<K>>,
}

/// What a [`Pool`] may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// Bytes of all arenas that wait. 8 MiB: what a thread may idle with.
    pub max_bytes: usize,
    /// Arenas that wait. 64: more are in use at once only in a burst.
    pub max_arenas: usize,
    /// Keys remembered. 64: a key is looked for among all, most recent first, and a peer may choose keys.
    pub max_keys: usize,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits { max_bytes: 8 * 1024 * 1024, max_arenas: 64, max_keys: 64 }
    }
}

impl<K: PartialEq> Pool<K> {
    /// Makes an empty pool with the default [`PoolLimits`].
    ///
    /// # Allocation
    /// None until an arena comes back.
    pub fn new() -> Pool<K> {
        Pool::with_limits(PoolLimits::default())
    }

    /// Makes an empty pool.
    pub fn with_limits(limits: PoolLimits) -> Pool<K> {
        Pool { shelves: RefCell::new(Shelves { list: Vec::new(), bytes: 0, arenas: 0, ids: 0, limits }) }
    }

    /// Takes an arena that was used for `key`, or makes one with a first chunk of the size its uses had. Dropping it
    /// brings it back, reset and without an allocation limit. Its [`peak`](Arena::peak) is counted from here.
    ///
    /// # Allocation
    /// None for a key that has an arena waiting. Else one for the list of keys or of arenas, now and then.
    pub fn take(&self, key: K) -> Pooled<'_, K> {
        let mut shelves = self.shelves.borrow_mut();
        let at = shelves.shelf(key);
        let arena = match shelves.take(at) {
            Some(arena) => arena,
            None => Arena::with_growth(shelves.list[at].growth()),
        };
        let id = shelves.list[at].id;
        Pooled { arena, id, pool: self }
    }

    /// The decayed high-water mark of `key`, in bytes.
    pub fn high_water(&self, key: &K) -> Option<usize> {
        self.shelves.borrow().list.iter().find(|shelf| shelf.key == *key).map(|shelf| shelf.mark)
    }

    /// Bytes of the arenas that wait.
    pub fn bytes(&self) -> usize {
        self.shelves.borrow().bytes
    }

    /// Arenas that wait.
    pub fn arenas(&self) -> usize {
        self.shelves.borrow().arenas
    }

    /// Keys remembered.
    pub fn keys(&self) -> usize {
        self.shelves.borrow().list.len()
    }

    /// Frees every arena that waits and forgets every key. Arenas in use are dropped when they come back.
    pub fn clear(&self) {
        let mut shelves = self.shelves.borrow_mut();
        shelves.list.clear();
        (shelves.bytes, shelves.arenas) = (0, 0);
    }
}

impl<K: PartialEq> Default for Pool<K> {
    fn default() -> Pool<K> {
        Pool::new()
    }
}

impl<K> fmt::Debug for Pool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelves = self.shelves.borrow();
        f.debug_struct("Pool")
            .field("keys", &shelves.list.len())
            .field("arenas", &shelves.arenas)
            .field("bytes", &shelves.bytes)
            .finish_non_exhaustive()
    }
}

/// An arena taken from a [`Pool`], which it returns to when dropped.
#[derive(Debug)]
pub struct Pooled<'p, K> {
    arena: Arena,
    /// The shelf it came from, if that is still there.
    id: u64,
    pool: &'p Pool<K>,
}

impl<K> Deref for Pooled<'_, K> {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        &self.arena
    }
}

impl<K> DerefMut for Pooled<'_, K> {
    fn deref_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }
}

impl<K> Drop for Pooled<'_, K> {
    fn drop(&mut self) {
        let arena = core::mem::take(&mut self.arena);
        self.pool.shelves.borrow_mut().put(self.id, arena);
    }
}

struct Shelves<K> {
    /// The most recently used last.
    list: Vec<Shelf<K>>,
    bytes: usize,
    arenas: usize,
    /// Shelves made so far.
    ids: u64,
    limits: PoolLimits,
}

struct Shelf<K> {
    key: K,
    /// Never used again for another key: an arena must not come back to a shelf that took over the place.
    id: u64,
    mark: usize,
    arenas: Vec<Arena>,
}

impl<K> Shelves<K> {
    fn take(&mut self, at: usize) -> Option<Arena> {
        let arena = self.list[at].arenas.pop()?;
        self.arenas -= 1;
        self.bytes -= arena.capacity();
        Some(arena)
    }

    fn put(&mut self, id: u64, mut arena: Arena) {
        let Some(shelf) = self.list.iter_mut().rfind(|shelf| shelf.id == id) else { return };
        // The last period ends first: what it used belongs to this use's peak, not to the next one's as well.
        arena.reset();
        shelf.mark = layout::decayed(shelf.mark, arena.take_peak());
        // A limit is of the use that set it, not of the next.
        arena.set_allocation_limit(None);
        let capacity = arena.capacity();
        // `reset` keeps an arena's first chunk, and one that waits at the bottom is never reset: what is far over what
        // the key needs now goes.
        let far_over = FAR_OVER * shelf.growth().first();
        if shelf.arenas.first().is_some_and(|oldest| oldest.capacity() > far_over) {
            self.bytes -= shelf.arenas.remove(0).capacity();
            self.arenas -= 1;
        }
        if capacity > far_over
            || self.arenas >= self.limits.max_arenas
            || self.bytes.saturating_add(capacity) > self.limits.max_bytes
        {
            return;
        }
        shelf.arenas.push(arena);
        self.arenas += 1;
        self.bytes += capacity;
    }
}

impl<K: PartialEq> Shelves<K> {
    /// The place of `key`, which is the last now.
    fn shelf(&mut self, key: K) -> usize {
        let last = self.list.len();
        let place = self.list.iter().rposition(|shelf| shelf.key == key);
        if let Some(at) = place {
            self.list[at..].rotate_left(1);
            return last - 1;
        }
        if last >= self.limits.max_keys.max(1) {
            let oldest = self.list.remove(0);
            self.arenas -= oldest.arenas.len();
            self.bytes -= oldest.arenas.iter().map(Arena::capacity).sum::<usize>();
        }
        // A `u64` counted up does not come round.
        self.ids += 1;
        self.list.push(Shelf { key, id: self.ids, mark: 0, arenas: Vec::new() });
        self.list.len() - 1
    }
}

impl<K> Shelf<K> {
    /// A first chunk for what the key's uses needed, in one of four sizes per doubling.
    fn growth(&self) -> Growth {
        let needed =
            (self.mark + layout::HEADER + layout::ALLOCATOR_OVERHEAD).max(layout::DEFAULT_FIRST_CHUNK);
        let step = (needed.next_power_of_two() / 8).max(layout::CHUNK_ALIGN);
        let first = needed.div_ceil(step) * step;
        Growth::new(first.min(LARGEST_FIRST), layout::DEFAULT_MAX_CHUNK)
    }
}

/// An arena that holds more than this many times what its key needs now is not kept.
const FAR_OVER: usize = 4;

/// The largest first chunk: past it a use takes several, so that no use holds much more than it needs.
const LARGEST_FIRST: usize = 1024 * 1024;
