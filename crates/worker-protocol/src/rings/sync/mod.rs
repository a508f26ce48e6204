//! The words and blocks of the shared memory, as the tests need them:
//!
//! - Outside tests, the words are the atomics of the standard library.
//! - In tests, a process can be stopped after any of its stores (`counted`).
//! - In the models of `rings/model.rs`, everything is loom's (`modelled`).

#[cfg(not(test))]
mod plain;
#[cfg(not(test))]
pub(crate) use self::plain::{AtomicU32, AtomicU64, AtomicUsize, after_store, fence, shared_wait};

#[cfg(all(test, not(loom)))]
pub(crate) mod counted;
#[cfg(all(test, not(loom)))]
pub(crate) use self::counted::{
    AtomicU32, AtomicU64, AtomicUsize, after_store, fence, shared_wait,
};

#[cfg(all(test, loom))]
mod modelled;
#[cfg(all(test, loom))]
pub(crate) use self::modelled::{AtomicU32, AtomicU64, AtomicUsize, fence, shared_wait};

use super::layout::Place;

/// The memory of a sender's blocks.
#[cfg(not(all(test, loom)))]
#[repr(C)]
pub(crate) struct Slab(std::cell::UnsafeCell<[u8; super::layout::SLAB_SIZE]>);

#[cfg(not(all(test, loom)))]
impl Slab {
    /// Copies bytes into a block.
    ///
    /// # Safety
    /// - The block has at least this length, and `bytes` is not in the slab.
    /// - Nothing else accesses the block. If a hostile process does, it receives other bytes.
    pub(crate) unsafe fn write(&self, place: Place, bytes: &[u8]) {
        // SAFETY: the caller guarantees that the range is inside the slab.
        let start = unsafe { self.block(place) };
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

    /// Copies `len` bytes of a block to `out`, which is empty.
    ///
    /// # Safety
    /// - The block has at least this length.
    /// - The sender does not write to the block meanwhile. If a hostile process does, the bytes are
    ///   copied or not, and the caller checks them.
    pub(crate) unsafe fn read(&self, place: Place, len: usize, out: &mut Vec<u8>) {
        out.reserve(len);
        // SAFETY: the caller guarantees that the range is inside the slab. `out` has capacity for
        // the bytes, all of which are written.
        unsafe {
            self.block(place).copy_to_nonoverlapping(out.as_mut_ptr(), len);
            out.set_len(len);
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
pub(crate) struct Slab(Vec<loom::cell::UnsafeCell<[u8; super::layout::MAX_RECORD_LEN]>>);

#[cfg(all(test, loom))]
impl Slab {
    pub(crate) fn new() -> Slab {
        Slab((0..super::layout::BLOCKS).map(|_| loom::cell::UnsafeCell::new([0; _])).collect())
    }

    pub(crate) unsafe fn write(&self, place: Place, bytes: &[u8]) {
        // SAFETY: guaranteed by the caller, and checked by loom.
        self.0[place.block]
            .with_mut(|block| unsafe { (&mut *block)[..bytes.len()].copy_from_slice(bytes) });
    }

    pub(crate) unsafe fn read(&self, place: Place, len: usize, out: &mut Vec<u8>) {
        // SAFETY: guaranteed by the caller, and checked by loom.
        self.0[place.block].with(|block| unsafe { out.extend_from_slice(&(&*block)[..len]) });
    }
}
