//! Files by which bytes are passed to another process: in memory, with contents that cannot change
//! any more.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// The seals of a file whose length and contents are fixed.
const SEALS: libc::c_int =
    libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// Creates a file with these contents, to be passed to another process.
///
/// # Errors
/// Returns the system's error if memory or descriptors have run out.
pub fn create<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"rookery-record".as_ptr(), flags) };
    let fd = crate::checked(fd)?;
    // SAFETY: the call has just created the descriptor, so nothing else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    for part in parts {
        file.write_all(part)?;
    }
    // SAFETY: the descriptor is open, and the call passes no memory.
    crate::checked(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) })?;
    Ok(file)
}

/// Returns true if a descriptor refers to a file like those that [`create`] creates. A thread that
/// must not block can read such a file: no process can change the file, and reading the file never
/// waits for a disk.
pub fn is_content_file(file: BorrowedFd<'_>) -> bool {
    // SAFETY: the call passes no memory. It fails for a descriptor that is not a file in memory.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & SEALS == SEALS
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn the_file_can_only_be_read() {
        let file = create([&b"one "[..], b"two"]).unwrap();
        assert!(is_content_file(file.as_fd()));
        assert_eq!(file.metadata().unwrap().len(), 7);
        assert!((&file).write_all(b"x").is_err() && file.set_len(3).is_err());
        assert!(!is_content_file(tempfile::tempfile().unwrap().as_fd()));
    }
}
