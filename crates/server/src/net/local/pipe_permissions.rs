//! The permissions of named pipes, on Windows.

use std::ffi::c_void;
use std::io;
use std::ptr;

use windows_sys::Win32::Foundation::LocalFree;
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::{PSECURITY_DESCRIPTOR, SECURITY_ATTRIBUTES};
use windows_sys::core::w;

/// The permissions of a named pipe: the system, administrators and the pipe's owner have full
/// access, and nobody else has any. By default, all users could read, and thereby occupy
/// connections.
pub(super) struct PipePermissions(PSECURITY_DESCRIPTOR);

impl PipePermissions {
    pub(super) fn new() -> io::Result<PipePermissions> {
        let mut descriptor: PSECURITY_DESCRIPTOR = ptr::null_mut();
        // SAFETY: the text ends with a zero, `descriptor` is valid for a write, and the null
        // pointer means that the size is not wanted.
        let converted = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                w!("D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;OW)"),
                SDDL_REVISION_1,
                &raw mut descriptor,
                ptr::null_mut(),
            )
        };
        if converted == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PipePermissions(descriptor))
    }

    /// Calls `create` with a pointer to the `SECURITY_ATTRIBUTES` of the pipe, which is valid
    /// during the call. The handle that is created with them is not inherited.
    pub(super) fn apply<T>(&self, create: impl FnOnce(*mut c_void) -> T) -> T {
        let mut attributes = SECURITY_ATTRIBUTES {
            nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        };
        create((&raw mut attributes).cast())
    }
}

impl Drop for PipePermissions {
    fn drop(&mut self) {
        // SAFETY: the conversion has allocated the descriptor, and nothing else refers to it.
        unsafe { LocalFree(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};

    use windows_sys::Win32::Security::Authorization::{GetSecurityInfo, SE_KERNEL_OBJECT};
    use windows_sys::Win32::Security::{ACL, DACL_SECURITY_INFORMATION};
    use windows_sys::Win32::Storage::FileSystem::PIPE_ACCESS_DUPLEX;
    use windows_sys::Win32::System::Pipes::CreateNamedPipeW;

    use super::*;

    #[test]
    fn a_pipe_has_three_permissions_and_none_for_everyone() {
        let name: Vec<u16> = format!("\\\\.\\pipe\\rookery-permissions-{}\0", std::process::id())
            .encode_utf16()
            .collect();
        // SAFETY: the name ends with a zero, and the attributes are valid during the call.
        let handle = PipePermissions::new().unwrap().apply(|attributes| unsafe {
            let attributes = attributes.cast();
            CreateNamedPipeW(name.as_ptr(), PIPE_ACCESS_DUPLEX, 0, 1, 0, 0, 0, attributes)
        });
        // SAFETY: the call has just created the handle.
        let pipe = unsafe { OwnedHandle::from_raw_handle(handle) };
        let (mut list, mut descriptor): (*mut ACL, _) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the handle is open, and both pointers are valid for writes.
        let result = unsafe {
            GetSecurityInfo(
                pipe.as_raw_handle(),
                SE_KERNEL_OBJECT,
                DACL_SECURITY_INFORMATION,
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut list,
                ptr::null_mut(),
                &raw mut descriptor,
            )
        };
        assert_eq!(result, 0);
        assert!(!list.is_null(), "without a list, everyone has full access");
        // SAFETY: the list is part of the descriptor, which exists until the next call.
        assert_eq!(unsafe { (*list).AceCount }, 3);
        // SAFETY: the call above has allocated the descriptor.
        unsafe { LocalFree(descriptor) };
    }
}
