//! Files that are read at an offset, and files and folders to which only the user of this process
//! has access.
//!
//! On Windows, a new file or folder has the access rights that its parent folder gives it. In a
//! user's profile, these let only the user, the system and administrators read it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Reads bytes of a file that begin at `offset`, and returns the number of bytes read, which is 0
/// at the end of the file. On Windows, also moves the file's cursor.
///
/// # Errors
/// Returns the system's error.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, offset);
    #[cfg(windows)]
    std::os::windows::fs::FileExt::seek_read(file, buffer, offset)
}

/// Fills `buffer` with the bytes of a file that begin at `offset`. On Windows, also moves the
/// file's cursor.
///
/// # Errors
/// Returns `UnexpectedEof` if the file ends before `buffer` is full, and otherwise the system's
/// error.
pub fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match read_at(file, buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes a new file accessible only to the user of this process, if `options` create it. Has no
/// effect on Windows.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Makes a new folder accessible only to the user of this process. Has no effect on Windows.
pub fn private_folder(builder: &mut DirBuilder) -> &mut DirBuilder {
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(builder, 0o700);
    builder
}

/// Takes the permissions of all other users from an existing folder. Has no effect on Windows.
///
/// # Errors
/// Returns the system's error, for example if another user owns the folder.
pub fn make_folder_private(folder: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if std::fs::metadata(folder)?.permissions().mode() & 0o077 != 0 {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
        }
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Checks whether this user may create files in an existing folder, without creating one.
///
/// # Errors
/// Returns `NotADirectory` for anything but a folder, and otherwise the system's error. On Windows,
/// access rights are not checked.
pub fn check_writable_folder(folder: &Path) -> io::Result<()> {
    if !std::fs::metadata(folder)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    #[cfg(unix)]
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)?;
    Ok(())
}

/// Checks whether this user may create a folder, or create files in it if it exists, without
/// changing anything.
///
/// # Errors
/// Returns the error of [`check_writable_folder`] for the first of the folder and its parent
/// folders that exists.
pub fn check_creatable_folder(folder: &Path) -> io::Result<()> {
    for folder in folder.ancestors() {
        match check_writable_folder(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            checked => return checked,
        }
    }
    Ok(())
}

/// Returns the permissions of a file as on Unix (`0o644`), or `None` on Windows.
pub fn mode(metadata: &std::fs::Metadata) -> Option<u32> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::MetadataExt::mode(metadata) & 0o777);
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}

/// Returns true if an open file has no name any more, so that closing it frees its disk space.
/// Always returns false on Windows, where a deleted file keeps its name until it is closed.
pub fn has_no_name(file: &File) -> bool {
    #[cfg(unix)]
    return file
        .metadata()
        .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) == 0);
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
}

/// Locks a file exclusively for this process, until the file is closed. Returns false if another
/// process has locked it. Does not wait.
///
/// # Errors
/// Returns the system's error, for example if the file system has no locks.
pub fn try_lock(file: &File) -> io::Result<bool> {
    #[cfg(unix)]
    {
        match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
    #[cfg(windows)]
    {
        use std::os::windows::io::AsRawHandle as _;
        use windows_sys::Win32::Foundation::ERROR_LOCK_VIOLATION;
        use windows_sys::Win32::Storage::FileSystem::{
            LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
        };
        use windows_sys::Win32::System::IO::OVERLAPPED;
        let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
        let mut whole = OVERLAPPED::default();
        // SAFETY: the handle is open and was not opened for overlapped input and output, so that
        // the call has ended when it returns, and `whole` is valid until then.
        let locked = unsafe {
            LockFileEx(file.as_raw_handle(), flags, 0, u32::MAX, u32::MAX, &raw mut whole)
        };
        if locked != 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == i32::try_from(ERROR_LOCK_VIOLATION).ok() => Ok(false),
            error => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn scratch(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("rookery-{}-{name}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = private(options.read(true).write(true).create_new(true)).open(&path).unwrap();
        (path, file)
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens a file")]
    fn reads_at_an_offset_up_to_the_end() {
        let (path, mut file) = scratch("read");
        file.write_all(b"0123456789").unwrap();
        let mut three = [0; 3];
        read_exact_at(&file, &mut three, 4).unwrap();
        assert_eq!(&three, b"456");
        assert_eq!(read_at(&file, &mut three, 8).unwrap(), 2);
        assert_eq!(read_at(&file, &mut three, 10).unwrap(), 0);
        let error = read_exact_at(&file, &mut three, 8).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        drop(file);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens a file")]
    fn only_one_open_file_has_the_lock() {
        let (path, file) = scratch("lock");
        let other = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert!(try_lock(&file).unwrap());
        assert!(!try_lock(&other).unwrap());
        drop(file);
        assert!(try_lock(&other).unwrap());
        drop(other);
        std::fs::remove_file(path).unwrap();
    }
}
