//! Masking keys for the frames of WebSocket clients, from the system's random source, fresh for
//! each frame (RFC 6455, 5.3).

use std::cell::RefCell;

use crate::protocol::MaskKey;

/// The number of random bytes that are requested from the system at once. They suffice for the
/// masking keys of 256 frames.
const BATCH: usize = 1024;

/// The reserve of random bytes from which a thread takes its masking keys.
struct Source {
    bytes: [u8; BATCH],
    used: usize,
    /// The value of the fork counter when the random bytes were drawn. In a forked child the
    /// counter has another value, so the bytes are drawn again.
    generation: u32,
}

thread_local! {
    static SOURCE: RefCell<Source> =
        const { RefCell::new(Source { bytes: [0; BATCH], used: BATCH, generation: 0 }) };
}

/// Returns the masking key for the next frame.
///
/// # Panics
/// If the system cannot supply random bytes. On Linux, macOS and Windows, this does not happen once
/// the system has booted.
pub(crate) fn next_mask() -> MaskKey {
    MaskKey(random())
}

/// Returns 16 random bytes, the nonce of a client's opening handshake.
pub(crate) fn next_nonce() -> [u8; 16] {
    random()
}

fn random<const N: usize>() -> [u8; N] {
    SOURCE.with_borrow_mut(|source| {
        if source.used + N > BATCH || source.generation != forks::generation() {
            source.fill(N);
        }
        let mut key = [0; N];
        key.copy_from_slice(&source.bytes[source.used..source.used + N]);
        source.used += N;
        key
    })
}

impl Source {
    /// Replaces the thread's reserve of random bytes by new bytes from the system. If forks cannot
    /// be detected, only the `n` bytes that the caller uses now are made available, so that a
    /// forked child inherits no unused bytes.
    #[cold]
    fn fill(&mut self, n: usize) {
        let are_seen = forks::watch();
        self.generation = forks::generation();
        getrandom::fill(&mut self.bytes).expect("the system has randomness");
        // Without the fork handler a child could not be distinguished from its parent, so no bytes
        // are kept.
        self.used = if are_seen { 0 } else { BATCH - n };
    }
}

/// Detects forks, because a forked child inherits a copy of its parent's random bytes, but must not
/// use the same masking keys.
///
/// A handler that the C library calls in each child counts the forks. If the count has changed
/// since the random bytes were drawn, they are drawn again. Comparing the counts for each frame is
/// cheaper than a system call for the process id. A bare `clone` system call is not counted, but
/// its child may run no Rust code except `exec` anyway.
#[cfg(all(unix, not(miri)))]
mod forks {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static GENERATION: AtomicU32 = AtomicU32::new(0);

    /// Returns the fork counter: the number of forks between the process that called `watch` (which
    /// registers the fork handler) and this process.
    #[inline]
    pub(super) fn generation() -> u32 {
        // No other ordering is needed: the child sees what its handler has stored.
        GENERATION.load(Ordering::Relaxed)
    }

    extern "C" fn count() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }

    /// Registers the handler that counts forks. Returns false if the system has no memory for it.
    pub(super) fn watch() -> bool {
        static IS_WATCHED: OnceLock<bool> = OnceLock::new();
        *IS_WATCHED.get_or_init(|| {
            // SAFETY: `count` may run in a child of a process with several threads, because it only
            // changes an atomic number and calls nothing. The function stays in memory as long as
            // the process may fork: the C library removes the handler when the library that
            // contains it is unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(count)) == 0 }
        })
    }
}

/// The count of forks for systems that have no `fork`: always zero.
#[cfg(not(all(unix, not(miri))))]
mod forks {
    pub(super) fn generation() -> u32 {
        0
    }

    pub(super) fn watch() -> bool {
        true
    }
}
