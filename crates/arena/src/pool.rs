//! Arenas kept between uses, by what they are used for.
//!
//! A pool belongs to one thread and takes no lock. Each key remembers the decayed high-water mark of its uses; an arena
//! made for the key has a first chunk of that size, so that a use that is like the others takes one chunk and one malloc.
//!
//! # Ground rules
//! No code of the user's runs while the shelves are borrowed: a key's `Hash`, `Eq` and `Drop` may
//! use the pool. So keys are hashed before a borrow, compared by way of an `Arc` between borrows,
//! and dropped after one.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem;
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
/// `take` and `high_water` hash the key and compare the hash with those of the keys remembered (at
/// most [`max_keys`](PoolLimits::max_keys)), the latest first; keys of the same hash are compared
/// with `==`. Bringing an arena back costs its `reset`, and a drop where it passes a limit.
/// `bytes`, `arenas` and `keys` are constant; `clear` frees every arena that waits.
///
/// # Limits
/// At most [`max_bytes`](PoolLimits::max_bytes) and [`max_arenas`](PoolLimits::max_arenas) wait in
/// the pool; an arena that would pass them is dropped when it comes back. At most
/// [`max_keys`](PoolLimits::max_keys) keys are remembered; a further one takes the place of the one
/// not used for longest. An arena that holds over four times what its key needs now is dropped as
/// well.
///
/// # Keys
/// A key's `Hash`, `Eq` and `Drop` may use the pool. If an `Eq` changes what the pool remembers, the
/// key that was looked for may be remembered twice for a while.
pub struct Pool<K> {
    shelves: RefCell<Shelves<K>>,
}

/// What a [`Pool`] may keep.
///
/// ```
/// use rookery_arena::PoolLimits;
///
/// let limits = PoolLimits::default().with_max_bytes(1 << 20).with_max_keys(16);
/// assert_eq!((limits.max_bytes, limits.max_arenas, limits.max_keys), (1 << 20, 64, 16));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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

impl PoolLimits {
    /// Sets [`max_bytes`](PoolLimits::max_bytes).
    #[must_use]
    pub const fn with_max_bytes(self, max_bytes: usize) -> PoolLimits {
        PoolLimits { max_bytes, ..self }
    }

    /// Sets [`max_arenas`](PoolLimits::max_arenas).
    #[must_use]
    pub const fn with_max_arenas(self, max_arenas: usize) -> PoolLimits {
        PoolLimits { max_arenas, ..self }
    }

    /// Sets [`max_keys`](PoolLimits::max_keys). At least one key is remembered.
    #[must_use]
    pub const fn with_max_keys(self, max_keys: usize) -> PoolLimits {
        PoolLimits { max_keys, ..self }
    }
}

impl<K: Eq + Hash> Pool<K> {
    /// Makes an empty pool with the default [`PoolLimits`].
    ///
    /// # Allocation
    /// None until the first [`take`](Pool::take).
    pub fn new() -> Pool<K> {
        Pool::with_limits(PoolLimits::default())
    }

    /// Makes an empty pool.
    ///
    /// # Allocation
    /// None until the first [`take`](Pool::take).
    pub fn with_limits(limits: PoolLimits) -> Pool<K> {
        Pool {
            shelves: RefCell::new(Shelves {
                list: Vec::new(),
                bytes: 0,
                arenas: 0,
                ids: 0,
                limits,
            }),
        }
    }

    /// Takes an arena that was used for `key`, or makes one with a first chunk of the size its uses had. Dropping it
    /// brings it back, reset and without an allocation limit. Its [`peak`](Arena::peak) is counted from here.
    ///
    /// # Allocation
    /// None for a key that has an arena waiting. A new key is put into an allocation of its own,
    /// and the lists of keys and of arenas grow now and then.
    pub fn take(&self, key: K) -> Pooled<'_, K> {
        let hash = hash_of(&key);
        let found = self.find(hash, &key);
        let (arena, id, forgotten) = {
            let mut shelves = self.shelves.borrow_mut();
            let mut forgotten = None;
            // What was found may be gone again, if a comparison cleared the pool.
            let at = match found.and_then(|id| shelves.renew(id)) {
                Some(at) => at,
                None => {
                    forgotten = shelves.push(hash, key);
                    shelves.list.len() - 1
                }
            };
            let arena = match shelves.take(at) {
                Some(arena) => arena,
                None => Arena::with_growth(shelves.list[at].growth()),
            };
            (arena, shelves.list[at].id, forgotten)
        };
        let pooled = Pooled { arena, id, pool: self };
        drop(forgotten);
        pooled
    }

    /// The decayed high-water mark of `key`, in bytes.
    pub fn high_water(&self, key: &K) -> Option<usize> {
        let id = self.find(hash_of(key), key)?;
        let shelves = self.shelves.borrow();
        shelves.list.iter().find(|shelf| shelf.id == id).map(|shelf| shelf.mark)
    }

    /// Finds the shelf of `key` and returns its id.
    fn find(&self, hash: u64, key: &K) -> Option<u64> {
        let mut before = self.keys();
        loop {
            let (at, id, candidate) = {
                let shelves = self.shelves.borrow();
                let rest = &shelves.list[..before.min(shelves.list.len())];
                let at = rest.iter().rposition(|shelf| shelf.hash == hash)?;
                (at, rest[at].id, Arc::clone(&rest[at].key))
            };
            if *candidate == *key {
                return Some(id);
            }
            // Whatever the comparison did to the list, this ends.
            before = at;
        }
    }
}

impl<K> Pool<K> {
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
        let forgotten = {
            let mut shelves = self.shelves.borrow_mut();
            (shelves.bytes, shelves.arenas) = (0, 0);
            mem::take(&mut shelves.list)
        };
        drop(forgotten);
    }
}

impl<K: Eq + Hash> Default for Pool<K> {
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
        let mut arena = mem::take(&mut self.arena);
        // The last period ends first: what it used belongs to this use's peak, not to the next
        // one's as well.
        arena.reset();
        // A limit is of the use that set it, not of the next.
        arena.set_allocation_limit(None);
        let used = arena.take_peak();
        let rejected = self.pool.shelves.borrow_mut().put(self.id, arena, used);
        drop(rejected);
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
    /// Shared with a comparison, which runs outside of a borrow.
    key: Arc<K>,
    hash: u64,
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

    /// Puts an arena on its shelf, if that is still there. Returns the arenas to drop: this one, or
    /// one that waited.
    fn put(&mut self, id: u64, arena: Arena, used: usize) -> [Option<Arena>; 2] {
        let Some(shelf) = self.list.iter_mut().rfind(|shelf| shelf.id == id) else {
            return [Some(arena), None];
        };
        shelf.mark = layout::decayed(shelf.mark, used);
        let capacity = arena.capacity();
        // `reset` keeps an arena's first chunk, and one that waits at the bottom is never reset: what is far over what
        // the key needs now goes.
        let far_over = shelf.needed().saturating_mul(FAR_OVER);
        let mut rejected = [None, None];
        if shelf.arenas.first().is_some_and(|oldest| oldest.capacity() > far_over) {
            let oldest = shelf.arenas.remove(0);
            self.bytes -= oldest.capacity();
            self.arenas -= 1;
            rejected[1] = Some(oldest);
        }
        if capacity > far_over
            || self.arenas >= self.limits.max_arenas
            || self.bytes.saturating_add(capacity) > self.limits.max_bytes
        {
            rejected[0] = Some(arena);
        } else {
            shelf.arenas.push(arena);
            self.arenas += 1;
            self.bytes += capacity;
        }
        rejected
    }

    /// Makes the shelf with this id the most recently used, and returns its place, which is the
    /// last.
    fn renew(&mut self, id: u64) -> Option<usize> {
        let at = self.list.iter().rposition(|shelf| shelf.id == id)?;
        self.list[at..].rotate_left(1);
        Some(self.list.len() - 1)
    }

    /// Adds a shelf for `key` at the end. Returns the shelf that it takes the place of, if there
    /// are too many.
    fn push(&mut self, hash: u64, key: K) -> Option<Shelf<K>> {
        let mut forgotten = None;
        if self.list.len() >= self.limits.max_keys.max(1) {
            let oldest = self.list.remove(0);
            self.arenas -= oldest.arenas.len();
            self.bytes -= oldest.arenas.iter().map(Arena::capacity).sum::<usize>();
            forgotten = Some(oldest);
        }
        // A `u64` counted up does not come round.
        self.ids += 1;
        self.list.push(Shelf {
            key: Arc::new(key),
            hash,
            id: self.ids,
            mark: 0,
            arenas: Vec::new(),
        });
        forgotten
    }
}

impl<K> Shelf<K> {
    /// Bytes of a chunk that holds what the key's uses needed, in one of four sizes per doubling.
    fn needed(&self) -> usize {
        let needed = self.mark.saturating_add(layout::HEADER + layout::ALLOCATOR_OVERHEAD);
        let needed = needed.clamp(layout::DEFAULT_FIRST_CHUNK, layout::MAX_CHUNK);
        let step = (needed.next_power_of_two() / 8).max(layout::CHUNK_ALIGN);
        needed.div_ceil(step) * step
    }

    fn growth(&self) -> Growth {
        Growth::new(self.needed().min(LARGEST_FIRST), layout::DEFAULT_MAX_CHUNK)
    }
}

/// Hashes a key. The hash is not keyed: it spares comparisons, and no more than
/// [`max_keys`](PoolLimits::max_keys) of them can be chosen to be alike.
fn hash_of<K: Hash>(key: &K) -> u64 {
    let mut hasher = Fnv(0xCBF2_9CE4_8422_2325);
    key.hash(&mut hasher);
    hasher.finish()
}

/// The hash function FNV-1a.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// An arena that holds more than this many times what its key needs now is not kept.
const FAR_OVER: usize = 4;

/// The largest first chunk: past it a use takes several, so that no use holds much more than it needs.
const LARGEST_FIRST: usize = 1024 * 1024;
