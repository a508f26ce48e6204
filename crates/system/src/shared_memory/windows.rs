//! Shared memory on Windows: a section that is backed by the paging file.

use std::io;
use std::os::windows::io::{AsRawHandle as _, BorrowedHandle, FromRawHandle as _, OwnedHandle};
use std::ptr::NonNull;

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_ALL_ACCESS, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile,
    PAGE_READWRITE, UnmapViewOfFile,
};

/// Allocates zeroed memory of a fixed size, which processes can share through the returned handle.
///
/// # Errors
/// Returns the system's error if memory or handles have run out.
pub fn create(size: usize) -> io::Result<OwnedHandle> {
    let (high, low) = ((size as u64 >> 32) as u32, size as u32);
    let (security, name) = (std::ptr::null(), std::ptr::null());
    // SAFETY: the null pointers mean that the section has the default security and no name.
    let handle = unsafe {
        CreateFileMappingW(INVALID_HANDLE_VALUE, security, PAGE_READWRITE, high, low, name)
    };
    if handle.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just created the handle, so nothing else owns it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Checks that a handle refers to shared memory of at least `size` bytes, as [`create`] allocates
/// it, in this process or in another one.
///
/// # Errors
/// Returns the system's error if the handle refers to something else or to less memory.
pub fn check_size(memory: BorrowedHandle<'_>, size: usize) -> io::Result<()> {
    let start = map_bytes(memory, size)?;
    // SAFETY: the memory was mapped by the call above.
    unsafe { unmap(start) };
    Ok(())
}

/// Maps shared memory into this process as a `T`, for reading and writing. Other processes that map
/// the handle see the changes.
///
/// # Errors
/// Returns the system's error if the mapping is refused, for example because the memory has fewer
/// bytes than `T`.
pub fn map<T>(memory: BorrowedHandle<'_>) -> io::Result<NonNull<T>> {
    const { assert!(align_of::<T>() <= 4096, "a mapping is aligned to a page") };
    map_bytes(memory, size_of::<T>()).map(NonNull::cast)
}

fn map_bytes(memory: BorrowedHandle<'_>, size: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: the system chooses the address, so the new mapping replaces no memory that is in use.
    let view = unsafe { MapViewOfFile(memory.as_raw_handle(), FILE_MAP_ALL_ACCESS, 0, 0, size) };
    NonNull::new(view.Value.cast()).ok_or_else(io::Error::last_os_error)
}

/// Unmaps shared memory from this process.
///
/// # Safety
/// - `mapping` was returned by [`map`], and no reference to it exists.
pub unsafe fn unmap<T>(mapping: NonNull<T>) {
    let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: mapping.as_ptr().cast() };
    // SAFETY: the caller guarantees that the mapping exists and is not used.
    unsafe { UnmapViewOfFile(view) };
}
