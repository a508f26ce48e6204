//! The free space of a file system, and whether a file system is in memory.

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

/// Returns true if the file system that contains a file or folder is in memory: tmpfs or ramfs.
/// Returns false if the system does not tell.
pub fn is_in_memory(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    {
        // TMPFS_MAGIC and RAMFS_MAGIC in `linux/magic.h`.
        const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];
        let found = rustix::fs::fstatfs(file);
        found.is_ok_and(|it| u64::try_from(it.f_type).is_ok_and(|kind| IN_MEMORY.contains(&kind)))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "system calls")]
    fn a_file_in_shared_memory_is_in_memory_and_one_in_proc_is_not() {
        let shared = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(is_in_memory(&shared.into()));
        assert!(!is_in_memory(&File::open("/proc/version").unwrap()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn a_disk_has_a_size_and_at_most_as_much_free_space() {
        let program = std::env::current_exe().unwrap();
        let file = File::open(&program).unwrap();
        let space = DiskSpace::of(&file, program.parent().unwrap()).unwrap();
        assert!(space.total > 1 << 20 && space.free <= space.total, "{space:?}");
    }
}
