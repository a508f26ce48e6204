//! The memory that this process may use.

/// Returns the size in bytes of the machine's memory, or `None` if the system does not report it.
pub fn physical() -> Option<u64> {
    #[cfg(unix)]
    {
        let (pages, size) =
            // SAFETY: No pointers are involved. The result -1 means that the system does not know
            // the value.
            unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
        u64::try_from(pages).ok()?.checked_mul(u64::try_from(size).ok()?)
    }
    #[cfg(windows)]
    {
        use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
        let mut status = MEMORYSTATUSEX {
            dwLength: size_of::<MEMORYSTATUSEX>() as u32,
            ..MEMORYSTATUSEX::default()
        };
        // SAFETY: `status` is valid for writes and contains its size.
        let is_known = unsafe { GlobalMemoryStatusEx(&raw mut status) } != 0;
        is_known.then_some(status.ullTotalPhys)
    }
}

/// Returns the limit on the size in bytes of this process's address space (`ulimit -v`), or `None`
/// if there is none.
pub fn address_space() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::As).current;
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn the_machine_has_memory() {
        assert!(physical().is_some_and(|bytes| bytes > 64 << 20));
    }
}
