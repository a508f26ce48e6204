//! Memory that processes share through a descriptor (on Windows: a handle), with a size that no
//! process can change. Otherwise, another process could truncate the memory, and the next access to
//! it would raise SIGBUS.
//!
//! - On Linux, the size is sealed.
//! - On macOS, the size of such memory can be set once, and later attempts fail.
//! - On other Unix systems, nothing prevents a process that has the descriptor from changing the
//!   size.
//! - On Windows, the memory has a fixed size.

#[cfg(unix)]
mod mapping;
#[cfg_attr(all(target_os = "linux", not(feature = "portable")), path = "sealed.rs")]
#[cfg_attr(all(unix, any(not(target_os = "linux"), feature = "portable")), path = "named.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod os;

#[cfg(unix)]
pub use mapping::{map, unmap};
#[cfg(unix)]
pub use os::create_on_demand;
pub use os::{check_size, create};
#[cfg(windows)]
pub use os::{map, unmap};

/// The handle of shared memory that this process owns.
#[cfg(unix)]
pub type OwnedMemory = std::os::fd::OwnedFd;
/// The borrowed handle of shared memory.
#[cfg(unix)]
pub type BorrowedMemory<'fd> = std::os::fd::BorrowedFd<'fd>;
/// The handle of shared memory that this process owns.
#[cfg(windows)]
pub type OwnedMemory = std::os::windows::io::OwnedHandle;
/// The borrowed handle of shared memory.
#[cfg(windows)]
pub type BorrowedMemory<'handle> = std::os::windows::io::BorrowedHandle<'handle>;

/// Borrows the handle of shared memory.
pub fn borrow(memory: &OwnedMemory) -> BorrowedMemory<'_> {
    #[cfg(unix)]
    return std::os::fd::AsFd::as_fd(memory);
    #[cfg(windows)]
    std::os::windows::io::AsHandle::as_handle(memory)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn two_mappings_of_the_memory_show_the_same_values() {
        let memory = create(size_of::<[AtomicU64; 5000]>()).unwrap();
        check_size(borrow(&memory), size_of::<[AtomicU64; 5000]>()).unwrap();
        let [one, other] = [(); 2].map(|()| map::<[AtomicU64; 5000]>(borrow(&memory)).unwrap());
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
    #[cfg(unix)]
    fn other_descriptors_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        check_size(std::os::fd::AsFd::as_fd(&file), 4096).unwrap_err();
        let small = create(4096).unwrap();
        check_size(borrow(&small), 1 << 20).unwrap_err();
    }
}
