//! Files by which bytes are passed to another process: in memory, with contents that cannot change
//! any more.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

/// The seals of a file whose length and contents are fixed.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Creates a file with these contents, to be passed to another process.
///
/// # Errors
/// Returns the system's error if memory or descriptors have run out.
pub fn create<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create(c"rookery-record", flags)?);
    for part in parts {
        file.write_all(part)?;
    }
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Returns true if a descriptor refers to a file like those that [`create`] creates. A thread that
/// must not block can read such a file: no process can change the file, and reading the file never
/// waits for a disk.
pub fn is_content_file(file: BorrowedFd<'_>) -> bool {
    // The call fails for a descriptor that is not a file in memory.
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SEALS))
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
