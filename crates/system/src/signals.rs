//! A function for starting threads that never run signal handlers, and a function that returns the
//! id of the calling thread.

/// Calls `start` while all signals are blocked in the calling thread, and returns its result. A
/// thread that `start` creates keeps all signals blocked, so it never runs a signal handler, for
/// example one of R's. On Windows, which has no signals, only calls `start`.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    #[cfg(unix)]
    let before = {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both pointers are valid for writes of a signal set; sigfillset initializes the
        // first set before it is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        before
    };
    let started = start();
    #[cfg(unix)]
    // SAFETY: the first call of pthread_sigmask initialized `before`.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut())
    };
    started
}

/// Returns the thread id that the system gives to the calling thread, by which another process can
/// read the thread's processor time. Returns 0 on systems where no process can: all except Linux
/// and Windows.
pub fn thread_id() -> u32 {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    #[cfg(windows)]
    // SAFETY: the function takes no arguments and never fails.
    return unsafe { windows_sys::Win32::System::Threading::GetCurrentThreadId() };
    #[cfg(not(any(target_os = "linux", windows)))]
    0
}
