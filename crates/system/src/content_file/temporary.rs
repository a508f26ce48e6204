//! Files by which bytes are passed to another process, on systems that cannot seal files: temporary
//! files without a name. Objects of `shm_open` cannot be read or sent on macOS, and a reader that
//! maps a file ends by SIGBUS if another process truncates it.
//!
//! Both processes can change such a file at any time. A reader must read it at an offset, and check
//! how much it gets.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Creates a file with these contents, to be passed to another process.
///
/// # Errors
/// Returns the system's error if the disk is full or descriptors have run out.
pub fn create<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    for part in parts {
        file.write_all(part)?;
    }
    Ok(file)
}

/// Returns true if a descriptor refers to a file like those that [`create`] creates: a regular file
/// without a name. Reading a file that was just written does not wait, because its contents are in
/// the system's cache. But a hostile process can pass a file on a slow disk. On NFS, this function
/// always returns false, because a removed file that is still open keeps a name there.
pub fn is_content_file(file: BorrowedFd<'_>) -> bool {
    // SAFETY: a stat of zeros is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    let told = unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) };
    told == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 0
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn the_file_has_its_contents_and_no_name() {
        let file = create([&b"one "[..], b"two"]).unwrap();
        assert!(is_content_file(file.as_fd()) && crate::file::has_no_name(&file));
        let mut content = [0; 7];
        crate::file::read_exact_at(&file, &mut content, 0).unwrap();
        assert_eq!((&content, file.metadata().unwrap().len()), (b"one two", 7));
    }

    #[test]
    fn files_with_names_and_other_descriptors_are_none() {
        assert!(!is_content_file(tempfile::NamedTempFile::new().unwrap().as_file().as_fd()));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!is_content_file(socket.as_fd()));
        assert!(!is_content_file(File::open("/dev/zero").unwrap().as_fd()));
        assert!(!is_content_file(File::open("/").unwrap().as_fd()));
    }
}
