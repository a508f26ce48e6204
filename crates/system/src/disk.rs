//! The free space of a file system.

use std::fs::File;
use std::io;
use std::path::Path;

/// The size of a file system in bytes, and the number of bytes that an unprivileged user can still
/// write to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// The size of the file system in bytes.
    pub total: u64,
    /// The number of bytes that an unprivileged user can still write.
    pub free: u64,
}

impl DiskSpace {
    /// Returns the space of the file system that contains `file`, which is in `folder`. Unix uses
    /// the open file, and Windows the folder, which must exist.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn of(file: &File, folder: &Path) -> io::Result<DiskSpace> {
        #[cfg(unix)]
        {
            let _ = folder;
            let stat = rustix::fs::fstatvfs(file)?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            Ok(DiskSpace { total: bytes(stat.f_blocks), free: bytes(stat.f_bavail) })
        }
        #[cfg(windows)]
        {
            use std::os::windows::ffi::OsStrExt as _;
            use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;
            let _ = file;
            let path: Vec<u16> = folder.as_os_str().encode_wide().chain([0]).collect();
            let (mut free, mut total) = (0, 0);
            // SAFETY: the path ends with a zero, the numbers are valid for writes, and the null
            // pointer means that the last number is not returned.
            let is_known = unsafe {
                GetDiskFreeSpaceExW(
                    path.as_ptr(),
                    &raw mut free,
                    &raw mut total,
                    std::ptr::null_mut(),
                )
            };
            if is_known == 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(DiskSpace { total, free })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn a_disk_has_a_size_and_at_most_as_much_free_space() {
        let program = std::env::current_exe().unwrap();
        let file = File::open(&program).unwrap();
        let space = DiskSpace::of(&file, program.parent().unwrap()).unwrap();
        assert!(space.total > 1 << 20 && space.free <= space.total, "{space:?}");
    }
}
