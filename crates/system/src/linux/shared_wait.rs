//! Waiting for another process to change a word of shared memory, on Linux (a futex).

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` has the value `expected`, until [`wake`] is called on the same word of the
/// shared memory, but at most for `timeout`. May return early.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: the word and the time limit are valid for the call. Without FUTEX_PRIVATE_FLAG, the
    // system identifies the word by its place in the shared memory, and not by its address.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const limit)
    };
}

/// Wakes the thread that [waits](wait) for this word, in whichever process it runs.
///
/// # Errors
/// Returns the system's error, which occurs only if the memory is not mapped.
pub fn wake(word: &AtomicU32) -> io::Result<()> {
    // SAFETY: the word is valid for the call.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    if woken < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
