//! A function for starting threads that never run signal handlers, and a function that returns the
//! id of the calling thread.

/// Calls `start` while all signals are blocked in the calling thread, and returns its result. A
/// thread that `start` creates keeps all signals blocked, so it never runs a signal handler, for
/// example one of R's.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both pointers are valid for writes of a signal set; sigfillset initializes the first
    // set before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the first call of pthread_sigmask initialized `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

/// Returns the thread id that the system gives to the calling thread, or 0 outside Linux.
pub fn thread_id() -> u32 {
    #[cfg(target_os = "linux")]
    // SAFETY: gettid takes no arguments and never fails.
    return u32::try_from(unsafe { libc::gettid() }).unwrap_or(0);
    #[cfg(not(target_os = "linux"))]
    0
}
