//! A pool of arenas for reuse. Each arena belongs to a key, such as a route or a kind of work.
//!
//! A pool belongs to one thread and takes no lock. For each key it stores how many bytes the key's
//! arenas recently needed (the high-water mark). A new arena for the key gets a first chunk of that
//! size, so that it usually needs only one malloc.
//!
//! # Ground rules
//! The pool's `RefCell` is never borrowed while code of a key runs (`Hash`, `Eq` and `Drop`),
//! because that code may use the pool. A key is therefore hashed before a borrow, compared through
//! an `Arc` between borrows, and dropped after a borrow.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::mem;
use core::ops::{Deref, DerefMut};

use crate::arena::Arena;
use crate::layout::{self, Growth};

/// A pool of arenas for reuse. Each arena belongs to a key, such as a route or a kind of work.
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
/// `take` and `high_water` hash the key and compare the hash with those of the stored keys (at most
/// [`max_keys`](PoolLimits::max_keys)), the most recent first. Keys with the same hash are compared
/// with `==`. Returning an arena costs its `reset`, and a drop if it exceeds a limit. `bytes`,
/// `arenas` and `keys` take constant time, and `clear` frees every arena in the pool.
///
/// # Limits
/// The pool drops an arena that is returned in these cases:
/// - The pool would otherwise hold more than [`max_arenas`](PoolLimits::max_arenas) arenas or
///   [`max_bytes`](PoolLimits::max_bytes) bytes.
/// - The arena holds over four times what its key needs now.
///
/// The pool stores at most [`max_keys`](PoolLimits::max_keys) keys; a further key replaces the
/// least recently used one.
///
/// # Keys
/// The implementations of `Hash`, `Eq` and `Drop` of a key may call methods of the pool. If a
/// comparison changes the pool during the search for a key, that key may be stored twice for a
/// while.
pub struct Pool<K> {
    shelves: RefCell<Shelves<K>>,
}

/// The limits of a [`Pool`] of arenas: the maximum numbers of bytes, arenas and keys.
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
    /// The maximum number of bytes that all arenas in the pool hold together. Default: 8 MiB, which
    /// an idle thread may keep.
    pub max_bytes: usize,
    /// The maximum number of arenas that the pool keeps for reuse. Default: 64, because more arenas
    /// are in use at the same time only in a burst.
    pub max_arenas: usize,
    /// The maximum number of keys that the pool stores. Default: 64. The default is low because a
    /// search compares all keys, and because clients may be able to choose the keys.
    pub max_keys: usize,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits { max_bytes: 8 * 1024 * 1024, max_arenas: 64, max_keys: 64 }
    }
}

impl PoolLimits {
    /// Sets [`max_bytes`](PoolLimits::max_bytes), the maximum number of bytes that all arenas in
    /// the pool hold together.
    #[must_use]
    pub const fn with_max_bytes(self, max_bytes: usize) -> PoolLimits {
        PoolLimits { max_bytes, ..self }
    }

    /// Sets [`max_arenas`](PoolLimits::max_arenas), the maximum number of arenas in the pool.
    #[must_use]
    pub const fn with_max_arenas(self, max_arenas: usize) -> PoolLimits {
        PoolLimits { max_arenas, ..self }
    }

    /// Sets [`max_keys`](PoolLimits::max_keys), the maximum number of keys in the pool. 0 counts as
    /// 1.
    #[must_use]
    pub const fn with_max_keys(self, max_keys: usize) -> PoolLimits {
        PoolLimits { max_keys, ..self }
    }
}

impl<K: Eq + Hash> Pool<K> {
    /// Makes an empty pool with the default [`PoolLimits`].
    ///
    /// # Allocation
    /// None before the first [`take`](Pool::take).
    pub fn new() -> Pool<K> {
        Pool::with_limits(PoolLimits::default())
    }

    /// Makes an empty pool of arenas with these limits.
    ///
    /// # Allocation
    /// None before the first [`take`](Pool::take).
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

    /// Takes an arena that was used for `key` out of the pool. If there is none, makes an arena
    /// whose first chunk has the size that earlier uses of the key needed. The arena's
    /// [`peak`](Arena::peak) starts at zero. When the result is dropped, the arena is reset, loses
    /// its allocation limit and returns to the pool.
    ///
    /// # Allocation
    /// None for a key with an arena in the pool. A new key needs an allocation, and the lists of
    /// keys and of arenas grow occasionally.
    pub fn take(&self, key: K) -> Pooled<'_, K> {
        let hash = hash_of(&key);
        let found = self.find(hash, &key);
        let (arena, id, forgotten) = {
            let mut shelves = self.shelves.borrow_mut();
            let mut forgotten = None;
            // The shelf may have been removed meanwhile, if a comparison cleared the pool.
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

    /// Returns the high-water mark of `key`: the number of bytes that its arenas recently needed.
    /// Returns `None` if the key is not stored.
    pub fn high_water(&self, key: &K) -> Option<usize> {
        let id = self.find(hash_of(key), key)?;
        let shelves = self.shelves.borrow();
        shelves.list.iter().find(|shelf| shelf.id == id).map(|shelf| shelf.mark)
    }

    /// Finds the shelf of `key` (the pool's entry for the key, with its arenas). Returns the id of
    /// the shelf, or `None` if the key is not stored.
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
            // The loop ends even if the comparison has changed the list.
            before = at;
        }
    }
}

impl<K> Pool<K> {
    /// Returns the number of bytes that the arenas in the pool hold. Arenas in use are not
    /// included.
    pub fn bytes(&self) -> usize {
        self.shelves.borrow().bytes
    }

    /// Returns the number of arenas in the pool. Arenas in use are not included.
    pub fn arenas(&self) -> usize {
        self.shelves.borrow().arenas
    }

    /// Returns the number of keys that the pool stores.
    pub fn keys(&self) -> usize {
        self.shelves.borrow().list.len()
    }

    /// Frees every arena in the pool and removes every key. Arenas that are in use now are dropped
    /// when they are returned.
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

/// An arena taken from a [`Pool`]. It returns to the pool when this value is dropped.
#[derive(Debug)]
pub struct Pooled<'p, K> {
    arena: Arena,
    /// The id of the shelf (the pool's entry for a key) that the arena came from. The shelf may
    /// have been removed meanwhile.
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
        // The last period ends first: what it used belongs to the peak of this use and not to that
        // of the next.
        arena.reset();
        // A limit applies to the use that set it and not to the next.
        arena.set_allocation_limit(None);
        let used = arena.take_peak();
        let rejected = self.pool.shelves.borrow_mut().put(self.id, arena, used);
        drop(rejected);
    }
}

struct Shelves<K> {
    /// The shelves: one for each key, with the key's arenas. The most recently used shelf is the
    /// last.
    list: Vec<Shelf<K>>,
    bytes: usize,
    arenas: usize,
    /// The number of shelves (entries for a key) that the pool has made so far. Each new shelf gets
    /// this number as its id.
    ids: u64,
    limits: PoolLimits,
}

struct Shelf<K> {
    /// The key of this shelf. It is in an `Arc` so that a comparison can use the key without a
    /// borrow of the pool.
    key: Arc<K>,
    hash: u64,
    /// The id of this shelf (the pool's entry for a key). It is never used again for another key,
    /// so that an arena cannot return to a shelf that has replaced its own.
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

    /// Returns an arena that needed `used` bytes to its shelf (the pool's entry for a key), if the
    /// shelf still exists. The result contains the arenas that the caller must drop: this one, the
    /// oldest one on the shelf, both or none.
    fn put(&mut self, id: u64, arena: Arena, used: usize) -> [Option<Arena>; 2] {
        let Some(shelf) = self.list.iter_mut().rfind(|shelf| shelf.id == id) else {
            return [Some(arena), None];
        };
        shelf.mark = layout::decayed(shelf.mark, used);
        let capacity = arena.capacity();
        // `reset` keeps the first chunk, and an arena at the bottom of a shelf is never reset. An
        // arena that holds far more than the key needs now is therefore dropped.
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

    /// Makes the shelf with this id the most recently used one, by moving it to the end of the
    /// list. Returns its new index.
    fn renew(&mut self, id: u64) -> Option<usize> {
        let at = self.list.iter().rposition(|shelf| shelf.id == id)?;
        self.list[at..].rotate_left(1);
        Some(self.list.len() - 1)
    }

    /// Adds a shelf (the pool's entry for a key) for `key` at the end of the list. Returns the
    /// shelf that it replaces, if there are too many.
    fn push(&mut self, hash: u64, key: K) -> Option<Shelf<K>> {
        let mut forgotten = None;
        if self.list.len() >= self.limits.max_keys.max(1) {
            let oldest = self.list.remove(0);
            self.arenas -= oldest.arenas.len();
            self.bytes -= oldest.arenas.iter().map(Arena::capacity).sum::<usize>();
            forgotten = Some(oldest);
        }
        // A `u64` that is counted up does not overflow.
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
    /// Returns the size of a first chunk that is large enough for the recent uses of the key. The
    /// size is rounded up coarsely: there are four sizes between two powers of two.
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

/// Hashes a key of the pool. The hash function is not protected against keys that were chosen to
/// collide, because collisions do little harm: each costs one comparison, and the pool stores at
/// most [`max_keys`](PoolLimits::max_keys) keys.
fn hash_of<K: Hash>(key: &K) -> u64 {
    let mut hasher = Fnv(0xCBF2_9CE4_8422_2325);
    key.hash(&mut hasher);
    hasher.finish()
}

/// A hasher for the hash function FNV-1a.
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

/// The largest ratio of the memory that an arena holds to the memory that its key needs now. The
/// pool drops arenas with a larger ratio.
const FAR_OVER: usize = 4;

/// The maximum size in bytes of the first chunk of an arena that the pool makes. An arena that
/// needs more memory gets further chunks, so that no arena holds much more memory than it needs.
const LARGEST_FIRST: usize = 1024 * 1024;
