//! Shared memory that has a name until it is open, on macOS and other Unix systems.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::random::unpredictable;

/// The granularity of the size of shared memory, which is at least the size of a page on every
/// system. Systems that round the size up then report the same size as those that do not.
const GRANULE: usize = 64 << 10;

/// The maximum number of names that are tried, because other processes may have created them.
const MAX_ATTEMPTS: u32 = 100;

/// Allocates zeroed memory of a fixed size, which processes can share through the returned
/// descriptor.
///
/// # Errors
/// Returns the system's error if memory or descriptors have run out.
pub fn create(size: usize) -> io::Result<OwnedFd> {
    let memory = open_unnamed()?;
    let size = libc::off_t::try_from(size.next_multiple_of(GRANULE)).map_err(io::Error::other)?;
    // macOS refuses any later change of the size.
    // SAFETY: the descriptor is open, and the call passes no memory.
    crate::checked(unsafe { libc::ftruncate(memory.as_raw_fd(), size) })?;
    Ok(memory)
}

/// Creates zeroed memory like [`create`], whose pages are always allocated when they are first
/// accessed.
///
/// # Errors
/// Returns the system's error if memory or descriptors have run out.
pub fn create_on_demand(size: usize) -> io::Result<OwnedFd> {
    create(size)
}

/// Opens new shared memory and removes its name, so that only the descriptor leads to it.
fn open_unnamed() -> io::Result<OwnedFd> {
    for _ in 0..MAX_ATTEMPTS {
        // Another user who could guess the names would create them first. macOS accepts at most 31
        // bytes.
        let name =
            CString::new(format!("/rookery-{:016x}", unpredictable())).map_err(io::Error::other)?;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let mode: libc::c_uint = 0o600;
        // SAFETY: the name is a C string, and the third argument is the mode that O_CREAT requires.
        let fd = unsafe { libc::shm_open(name.as_ptr(), flags, mode) };
        if fd < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::AlreadyExists => continue,
                error => return Err(error),
            }
        }
        // SAFETY: the call has just created the descriptor, which is closed on exec, so nothing
        // else owns it.
        let memory = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the name is a C string.
        crate::checked(unsafe { libc::shm_unlink(name.as_ptr()) })?;
        return Ok(memory);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Checks that a descriptor refers to shared memory of `size` bytes, as [`create`] allocates it, in
/// this process or in another one.
///
/// # Errors
/// Returns `InvalidData` if the descriptor refers to something else or if the size differs.
pub fn check_size(memory: BorrowedFd<'_>, size: usize) -> io::Result<()> {
    // SAFETY: a stat of zeros is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    crate::checked(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut stat) })?;
    if usize::try_from(stat.st_size) != Ok(size.next_multiple_of(GRANULE)) {
        let what = "the shared memory has an unexpected size";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "shared memory")]
    fn the_names_cannot_be_created_beforehand_by_counting() {
        let pid = std::process::id();
        let names = (0..2 * MAX_ATTEMPTS)
            .map(|number| CString::new(format!("/rookery-{pid}-{number}")).unwrap());
        let names: Vec<CString> = names.collect();
        for name in &names {
            let mode: libc::c_uint = 0o600;
            // SAFETY: the name is a C string, and the third argument is the mode.
            let fd = unsafe { libc::shm_open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR, mode) };
            assert!(fd >= 0);
            // SAFETY: the call has just created the descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let created = create(1);
        for name in &names {
            // SAFETY: the name is a C string.
            unsafe { libc::shm_unlink(name.as_ptr()) };
        }
        created.unwrap();
    }
}
