//! A process in which no further thread can be started.

/// Makes each further start of a thread in this process fail with EAGAIN, as if a limit of the
/// system were reached, and returns true. Processes can still be started. There is no way back, so
/// a test that calls this needs a process of its own. Returns false on systems without seccomp and
/// on processors whose system calls this function does not know.
pub fn forbid_new_threads() -> bool {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    return forbid();
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    false
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn forbid() -> bool {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let number = |call: libc::c_long| u32::try_from(call).unwrap();
    let fail = |error: i32| libc::SECCOMP_RET_ERRNO | u32::try_from(error).unwrap();
    // The offsets in `struct seccomp_data` of the system call's number and of its first argument,
    // which are the flags of `clone`. A filter cannot read the flags of `clone3`, so the C library
    // has to use `clone`.
    let mut filter = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, number(libc::SYS_clone3), 4, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, number(libc::SYS_clone), 0, 2),
        step(BPF_LD | BPF_W | BPF_ABS, 16, 0, 0),
        step(BPF_JMP | BPF_JSET | BPF_K, libc::CLONE_THREAD as u32, 2, 0),
        step(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(BPF_RET | BPF_K, fail(libc::ENOSYS), 0, 0),
        step(BPF_RET | BPF_K, fail(libc::EAGAIN), 0, 0),
    ];
    let program =
        libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    // SAFETY: the program points to the filter, which the kernel copies.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const program,
            ) == 0
    };
    installed && std::thread::Builder::new().spawn(|| ()).is_err()
}
