//! Memory that processes share through a descriptor, with a sealed size, which no process can
//! change. Otherwise, another process could truncate the memory, and the next access to it would
//! raise SIGBUS.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags};

/// The seals of shared memory, which forbid changing its size and its seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Allocates zeroed memory of a fixed size, which processes can share through the returned
/// descriptor.
///
/// # Errors
/// Returns the system's error if memory or descriptors have run out.
pub fn create(size: usize) -> io::Result<OwnedFd> {
    create_with(size, |memory, size| {
        // Allocates the pages now: a page that cannot be allocated on first access would raise
        // SIGBUS.
        retry_on_intr(|| rustix::fs::fallocate(memory, FallocateFlags::empty(), 0, size))
    })
}

/// Creates zeroed memory like [`create`], whose pages are allocated when they are first accessed.
/// This is for memory that is large and seldom used. If a page cannot be allocated, the system
/// kills a process for want of memory, as for any other memory.
///
/// # Errors
/// Returns the system's error if descriptors have run out.
pub fn create_on_demand(size: usize) -> io::Result<OwnedFd> {
    create_with(size, |memory, size| rustix::fs::ftruncate(memory, size))
}

fn create_with(
    size: usize,
    set_size: impl FnOnce(&OwnedFd, u64) -> rustix::io::Result<()>,
) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create(c"rookery-scoreboard", flags)?;
    set_size(&memory, size as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SEALS)?;
    Ok(memory)
}

/// Checks that a descriptor refers to memory of `size` bytes that [`create`] has allocated, in this
/// process or in another one.
///
/// # Errors
/// Returns `InvalidData` if the descriptor is not sealed memory or if the size differs.
pub fn check_size(memory: BorrowedFd<'_>, size: usize) -> io::Result<()> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    // The call fails for a descriptor that is not such memory.
    if !rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS)) {
        return Err(invalid("the descriptor is not sealed memory"));
    }
    if usize::try_from(rustix::fs::fstat(memory)?.st_size) != Ok(size) {
        return Err(invalid("the sealed memory has an unexpected size"));
    }
    Ok(())
}

/// Maps shared memory into this process as a `T`, for reading and writing. Other processes that map
/// the descriptor see the changes.
///
/// # Errors
/// Returns the system's error if the mapping is refused.
pub fn map<T>(memory: BorrowedFd<'_>) -> io::Result<NonNull<T>> {
    const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page") };
    let (size, access) = (size_of::<T>(), ProtFlags::READ | ProtFlags::WRITE);
    let place = std::ptr::null_mut();
    // SAFETY: the system chooses the address, so the new mapping replaces no memory that is in use.
    let start = unsafe { rustix::mm::mmap(place, size, access, MapFlags::SHARED, memory, 0) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))
}

/// Unmaps shared memory from this process.
///
/// # Safety
/// - `mapping` was returned by [`map`], and no reference to it exists.
pub unsafe fn unmap<T>(mapping: NonNull<T>) {
    // SAFETY: the caller guarantees that the mapping exists and is not used.
    let _ = unsafe { rustix::mm::munmap(mapping.as_ptr().cast(), size_of::<T>()) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn two_mappings_of_the_memory_show_the_same_values() {
        let memory = create(size_of::<[AtomicU64; 5000]>()).unwrap();
        check_size(memory.as_fd(), size_of::<[AtomicU64; 5000]>()).unwrap();
        let [one, other] = [(); 2].map(|()| map::<[AtomicU64; 5000]>(memory.as_fd()).unwrap());
        // SAFETY: the memory is mapped, of this size, and all zeros.
        let [first, second] = unsafe { [one.as_ref(), other.as_ref()] };
        assert_eq!(second[4999].load(Ordering::Relaxed), 0);
        first[4999].store(7, Ordering::Relaxed);
        assert_eq!(second[4999].load(Ordering::Relaxed), 7);
        // SAFETY: both were returned by `map`, and are not used any more.
        unsafe {
            unmap(one);
            unmap(other);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens a file")]
    fn other_descriptors_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        check_size(file.as_fd(), 4096).unwrap_err();
        let small = create(4096).unwrap();
        check_size(small.as_fd(), 1 << 20).unwrap_err();
    }
}
