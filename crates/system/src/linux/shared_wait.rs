//! Waiting for another process to change a word of shared memory, on Linux (a futex).

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex;

// Without the flag for private memory, the system identifies the word by its place in the shared
// memory, and not by its address.
const SHARED: futex::Flags = futex::Flags::empty();

/// Sleeps while `word` has the value `expected`, until [`wake`] is called on the same word of the
/// shared memory, but at most for `timeout`. May return early.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) {
    let limit = timeout.try_into().ok();
    // Whatever the result is, the caller looks at the word again.
    let _ = futex::wait(word, SHARED, expected, limit.as_ref());
}

/// Wakes the thread that [waits](wait) for this word, in whichever process it runs.
///
/// # Errors
/// Returns the system's error, which occurs only if the memory is not mapped.
pub fn wake(word: &AtomicU32) -> io::Result<()> {
    futex::wake(word, SHARED, 1)?;
    Ok(())
}
