//! Memory that processes share through a descriptor, with a sealed size, which no process can
//! change. Otherwise, another process could truncate the memory, and the next access to it would
//! raise SIGBUS.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;

/// The seals of shared memory, which forbid changing its size and its seals.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Allocates zeroed memory of a fixed size, which processes can share through the returned
/// descriptor.
///
/// # Errors
/// Returns the system's error if memory or descriptors have run out.
pub fn create(size: usize) -> io::Result<OwnedFd> {
    create_with(size, |fd, size| {
        // Allocates the pages now: a page that cannot be allocated on first access would raise
        // SIGBUS.
        // SAFETY: the descriptor is open, and the call passes no memory.
        let refused = unsafe { libc::posix_fallocate(fd, 0, size) };
        if refused == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(refused)) }
    })
}

/// Creates zeroed memory like [`create`], whose pages are allocated when they are first accessed.
/// This is for memory that is large and seldom used. If a page cannot be allocated, the system
/// kills a process for want of memory, as for any other memory.
///
/// # Errors
/// Returns the system's error if descriptors have run out.
pub fn create_on_demand(size: usize) -> io::Result<OwnedFd> {
    create_with(size, |fd, size| {
        // SAFETY: the descriptor is open, and the call passes no memory.
        crate::checked(unsafe { libc::ftruncate(fd, size) }).map(drop)
    })
}

fn create_with(
    size: usize,
    set_size: impl FnOnce(RawFd, libc::off_t) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"rookery-scoreboard".as_ptr(), flags) };
    let fd = crate::checked(fd)?;
    // SAFETY: the call has just created the descriptor, so nothing else owns it.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
    set_size(fd, size)?;
    // SAFETY: the descriptor is open, and the call passes no memory.
    crate::checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
    Ok(memory)
}

/// Checks that a descriptor refers to memory of `size` bytes that [`create`] has allocated, in this
/// process or in another one.
///
/// # Errors
/// Returns `InvalidData` if the descriptor is not sealed memory or if the size differs.
pub fn check_size(memory: BorrowedFd<'_>, size: usize) -> io::Result<()> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    // SAFETY: the call passes no memory. It fails for a descriptor that is not such memory.
    let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return Err(invalid("the descriptor is not sealed memory"));
    }
    // SAFETY: a stat of zeros is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    crate::checked(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut stat) })?;
    if usize::try_from(stat.st_size) != Ok(size) {
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
    // SAFETY: the system chooses the address, so the new mapping replaces no memory that is in use.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            memory.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))
}

/// Unmaps shared memory from this process.
///
/// # Safety
/// - `mapping` was returned by [`map`], and no reference to it exists.
pub unsafe fn unmap<T>(mapping: NonNull<T>) {
    // SAFETY: the caller guarantees that the mapping exists and is not used.
    unsafe { libc::munmap(mapping.as_ptr().cast(), size_of::<T>()) };
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
