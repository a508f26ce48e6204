//! The layout of the rings' shared memory.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rookery_system::linux::shared_memory;

#[cfg(not(all(test, loom)))]
use super::sync::after_store;
use super::sync::{AtomicU32, AtomicU64};

/// The first word of the rings, "RkRings\0" in ASCII.
const MAGIC: u64 = u64::from_le_bytes(*b"RkRings\0");

/// The version of the layout. A worker rejects rings with another version.
const VERSION: u64 = 4;

/// The number of words in a ring.
pub(crate) const WORDS: usize = match () {
    () if IS_MODEL => 4,
    () if IS_MIRI => 16,
    () => 1024,
};

/// The sizes of the blocks in a slab, and the number of blocks of each size. Most requests and
/// responses fit into the smallest blocks.
pub(crate) const CLASSES: [Class; 3] = if IS_MODEL {
    [
        Class { size: 1, count: 1 },
        Class { size: 2, count: 1 },
        Class { size: MAX_RECORD_LEN, count: 1 },
    ]
} else {
    let [small, medium, large] = if IS_MIRI { [8, 4, 2] } else { [512, 64, 16] };
    [
        Class { size: 1 << 10, count: small },
        Class { size: 8 << 10, count: medium },
        Class { size: MAX_RECORD_LEN, count: large },
    ]
};

/// The length in bytes of the largest block. A record up to this length crosses in one block. A
/// longer record crosses in parts, all of which except the last one fill the largest block.
pub const MAX_RECORD_LEN: usize = if IS_MODEL { 4 } else { 80 << 10 };

/// The maximum total length of a record in bytes.
pub const MAX_LONG_RECORD: usize = u32::MAX as usize;

/// Whether loom runs the models of these rings, which must be small.
const IS_MODEL: bool = cfg!(all(test, loom));

/// Whether the tests run under Miri. The rings must then be small, because each access makes Miri
/// look at all of the memory.
const IS_MIRI: bool = cfg!(all(test, miri));

/// A size class of the blocks in a slab.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Class {
    pub(crate) size: usize,
    pub(crate) count: usize,
}

/// The number of blocks in a slab.
pub(crate) const BLOCKS: usize = {
    let (mut blocks, mut at) = (0, 0);
    while at < CLASSES.len() {
        blocks += CLASSES[at].count;
        at += 1;
    }
    blocks
};

#[cfg_attr(all(test, loom), expect(dead_code, reason = "the blocks of the models are apart"))]
pub(crate) const SLAB_SIZE: usize = {
    let (mut size, mut at) = (0, 0);
    while at < CLASSES.len() {
        size += CLASSES[at].count * CLASSES[at].size;
        at += 1;
    }
    size
};

// A ring has a free word for each block.
const _: () = assert!(BLOCKS <= WORDS && WORDS.is_power_of_two());

/// The place of a block in its slab.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) class: usize,
    #[cfg_attr(all(test, loom), expect(dead_code, reason = "the blocks of the models are apart"))]
    pub(crate) offset: usize,
    #[cfg(all(test, loom))]
    pub(crate) block: usize,
}

/// Returns the place of the block with this number, or `None` if there is no such block.
pub(crate) fn place(block: usize) -> Option<Place> {
    let (mut first, mut start) = (0, 0);
    for (class, Class { size, count }) in CLASSES.into_iter().enumerate() {
        if block < first + count {
            let offset = start + (block - first) * size;
            return Some(Place {
                class,
                offset,
                #[cfg(all(test, loom))]
                block,
            });
        }
        first += count;
        start += count * size;
    }
    None
}

/// The lane of a record. The records of a lane arrive in order, and those of different lanes may
/// overtake each other. If the blocks run out in one lane, the other lane still has some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Requests, responses and streams.
    Requests = 0,
    /// WebSockets: messages, and whatever must not overtake them.
    Messages = 1,
}

impl Lane {
    /// The number of lanes.
    pub(crate) const COUNT: usize = 2;
}

/// The contents of a word of the ring of records: the kind of a record, its lane, its block and its
/// length. The word of a record is never zero, because no kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: u8,
    pub(crate) lane: Lane,
    /// Whether a descriptor belongs to the record. Set in the first part of a record only.
    pub(crate) has_descriptor: bool,
    pub(crate) block: usize,
    /// The number of bytes of the record that are in this block and in later ones. If the number
    /// exceeds [`MAX_RECORD_LEN`], this block is full, and another part of the record follows in
    /// the same lane.
    pub(crate) rest: usize,
}

const IS_MESSAGE: u64 = 1 << 55;
const HAS_DESCRIPTOR: u64 = 1 << 54;

/// The bit that the sender sets in the word of a record to withdraw the record.
pub(crate) const IS_WITHDRAWN: u64 = 1 << 53;

impl Record {
    pub(crate) fn word(self) -> u64 {
        debug_assert!(self.kind != 0 && self.block < BLOCKS && self.rest <= MAX_LONG_RECORD);
        let flags = if self.lane == Lane::Messages { IS_MESSAGE } else { 0 }
            | if self.has_descriptor { HAS_DESCRIPTOR } else { 0 };
        u64::from(self.kind) << 56 | flags | (self.block as u64) << 32 | self.rest as u64
    }

    /// Returns the record that a word describes. Returns `None` if the word describes no record;
    /// only a hostile process writes such a word.
    pub(crate) fn of_word(word: u64) -> Option<(Record, Place)> {
        let record = Record {
            kind: (word >> 56) as u8,
            lane: if word & IS_MESSAGE != 0 { Lane::Messages } else { Lane::Requests },
            has_descriptor: word & HAS_DESCRIPTOR != 0,
            block: (word >> 32) as usize & 0x001F_FFFF,
            rest: word as u32 as usize,
        };
        let place = place(record.block)?;
        let is_valid = record.kind != 0 && record.len() <= CLASSES[place.class].size;
        is_valid.then_some((record, place))
    }

    /// Returns the number of bytes in the block.
    pub(crate) fn len(self) -> usize {
        self.rest.min(MAX_RECORD_LEN)
    }
}

/// One of the two processes that use the rings. A side also names the direction in which that
/// process sends records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    FrontEnd = 0,
    Worker = 1,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::FrontEnd => Side::Worker,
            Side::Worker => Side::FrontEnd,
        }
    }
}

/// The contents of the shared memory.
#[repr(C)]
pub(crate) struct Shared {
    signature: Line<[AtomicU64; 3]>,
    /// The sleep word of each side.
    pub(crate) sleep: [Line<AtomicU32>; 2],
    /// The direction in which each side sends.
    pub(crate) sent_by: [Direction; 2],
}

/// The rings and the slab by which one side sends records to the other.
#[repr(C)]
pub(crate) struct Direction {
    pub(crate) records: Line<[AtomicU64; WORDS]>,
    pub(crate) returns: Line<[AtomicU64; WORDS]>,
    pub(crate) slab: Line<Slab>,
}

/// The memory of a sender's blocks.
#[cfg(not(all(test, loom)))]
#[repr(C)]
pub(crate) struct Slab(std::cell::UnsafeCell<[u8; SLAB_SIZE]>);

#[cfg(not(all(test, loom)))]
impl Slab {
    /// Copies bytes into a block, which they fill from `at` on.
    ///
    /// # Safety
    /// - The block has at least `at + bytes.len()` bytes, and `bytes` is not in the slab.
    /// - Nothing else accesses the block, except for a hostile process, which may then receive
    ///   other bytes.
    pub(crate) unsafe fn write(&self, place: Place, at: usize, bytes: &[u8]) {
        // SAFETY: the caller guarantees that the range is inside the slab.
        let start = unsafe { self.block(place).add(at) };
        let (first, second) = bytes.split_at(if cfg!(test) { bytes.len() / 2 } else { 0 });
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe {
            if cfg!(test) {
                start.copy_from_nonoverlapping(first.as_ptr(), first.len());
                after_store();
            }
            start.add(first.len()).copy_from_nonoverlapping(second.as_ptr(), second.len());
        }
        after_store();
    }

    /// Appends `len` bytes of a block to `out`.
    ///
    /// # Safety
    /// - The block has at least this length.
    /// - The sender does not write to the block meanwhile, except for a hostile process. The caller
    ///   must therefore check the copied bytes.
    pub(crate) unsafe fn read(&self, place: Place, len: usize, out: &mut Vec<u8>) {
        out.reserve(len);
        // SAFETY: the caller guarantees that the range is inside the slab. `out` has capacity for
        // the bytes, all of which are written.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            self.block(place).copy_to_nonoverlapping(end, len);
            out.set_len(out.len() + len);
        }
    }

    /// Returns a pointer to a block.
    ///
    /// # Safety
    /// - The place is inside the slab.
    pub(crate) unsafe fn block(&self, place: Place) -> *mut u8 {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        unsafe { self.0.get().cast::<u8>().add(place.offset) }
    }
}

/// The memory of a sender's blocks, whose accesses loom checks.
#[cfg(all(test, loom))]
pub(crate) struct Slab(Vec<loom::cell::UnsafeCell<[u8; MAX_RECORD_LEN]>>);

#[cfg(all(test, loom))]
impl Slab {
    pub(crate) fn new() -> Slab {
        Slab((0..BLOCKS).map(|_| loom::cell::UnsafeCell::new([0; _])).collect())
    }

    pub(crate) unsafe fn write(&self, place: Place, at: usize, bytes: &[u8]) {
        // SAFETY: guaranteed by the caller, and checked by loom.
        self.0[place.block].with_mut(|block| unsafe {
            (&mut *block)[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    pub(crate) unsafe fn read(&self, place: Place, len: usize, out: &mut Vec<u8>) {
        // SAFETY: guaranteed by the caller, and checked by loom.
        self.0[place.block].with(|block| unsafe { out.extend_from_slice(&(&*block)[..len]) });
    }
}

/// A wrapper that puts a value on cache lines of its own.
#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// The mapping of the shared memory into this process.
#[derive(Debug)]
pub(crate) struct Mapping(NonNull<Shared>);

// SAFETY: the mapping is not tied to a thread. Words are atomics, and blocks are only accessed by a
// `Sender` or a `Receiver`, each of which belongs to one thread at a time, and which never access
// the same block at the same time: a word of a ring passes the block from one to the other.
unsafe impl Send for Mapping {}
// SAFETY: the reason is the same as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) const SIZE: usize = size_of::<Shared>();

    pub(crate) fn new(memory: BorrowedFd<'_>) -> io::Result<Mapping> {
        shared_memory::map(memory).map(Mapping)
    }

    /// Allocates the memory instead of mapping it, because Miri cannot map.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn allocated() -> Mapping {
        let layout = std::alloc::Layout::new::<Shared>();
        // SAFETY: the size is not 0, and zeros are valid for all of the memory.
        Mapping(NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }.cast()).unwrap())
    }

    /// Allocates the memory from words that loom has made.
    #[cfg(all(test, loom))]
    pub(crate) fn modelled() -> Mapping {
        let words = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        let direction =
            || Direction { records: words(), returns: words(), slab: Line(Slab::new()) };
        let sleep = || Line(AtomicU32::new(0));
        Mapping(NonNull::from(Box::leak(Box::new(Shared {
            signature: Line(std::array::from_fn(|_| AtomicU64::new(0))),
            sleep: [sleep(), sleep()],
            sent_by: [direction(), direction()],
        }))))
    }

    pub(crate) fn write_signature(&self) {
        let [magic, version, size] = &self.shared().signature.0;
        version.store(VERSION, Relaxed);
        size.store(Mapping::SIZE as u64, Relaxed);
        magic.store(MAGIC, Release);
    }

    pub(crate) fn has_valid_signature(&self) -> bool {
        let [magic, version, size] = &self.shared().signature.0;
        magic.load(Acquire) == MAGIC
            && version.load(Relaxed) == VERSION
            && size.load(Relaxed) == Mapping::SIZE as u64
    }

    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the memory stays mapped as long as `self` exists, and has this size. It consists
        // of atomics and of bytes in an `UnsafeCell`, for all of which every value is valid.
        unsafe { self.0.as_ref() }
    }

    /// Returns the rings and the slab by which a side sends records.
    pub(crate) fn sent_by(&self, sender: Side) -> &Direction {
        &self.shared().sent_by[sender as usize]
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(all(test, loom))]
        // SAFETY: `modelled` has allocated the memory, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        #[cfg(all(test, miri))]
        // SAFETY: `allocated` has allocated the memory, and nothing refers to it any more.
        unsafe {
            std::alloc::dealloc(self.0.as_ptr().cast(), std::alloc::Layout::new::<Shared>());
        }
        if cfg!(all(test, any(miri, loom))) {
            return;
        }
        // SAFETY: `shared_memory::map` has mapped the memory, and nothing refers to it any more.
        unsafe { shared_memory::unmap(self.0) };
    }
}
