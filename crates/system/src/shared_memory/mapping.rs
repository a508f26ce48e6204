//! The mapping of shared memory into this process, on Unix systems.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

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
