//! Masking keys (RFC 6455, 5.3: from a strong source, fresh for each frame).

use std::cell::RefCell;

use crate::protocol::MaskKey;

/// Bytes asked of the system at once: one system call for 256 frames.
const BATCH: usize = 1024;

/// Random bytes that a thread has in store.
struct Source {
    bytes: [u8; BATCH],
    used: usize,
    /// How many forks lay between this process and its first ancestor when the bytes were drawn.
    generation: u32,
}

thread_local! {
    static SOURCE: RefCell<Source> =
        const { RefCell::new(Source { bytes: [0; BATCH], used: BATCH, generation: 0 }) };
}

/// Returns the next key.
///
/// # Panics
/// When the system has no randomness, which Linux, macOS and Windows promise not to happen once they have booted.
pub(crate) fn next_mask() -> MaskKey {
    MaskKey(random())
}

/// Returns the nonce of a handshake.
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
    /// Draws new bytes, of which the next `n` are asked for.
    #[cold]
    fn fill(&mut self, n: usize) {
        let are_seen = forks::watch();
        self.generation = forks::generation();
        getrandom::fill(&mut self.bytes).expect("the system has randomness");
        // Without the handler a child could not be distinguished from its parent: keep no bytes.
        self.used = if are_seen { 0 } else { BATCH - n };
    }
}

/// Tells a forked child from its parent: the child has a copy of the parent's bytes, and must not
/// use the keys that the parent will use.
///
/// The C library calls a function in each child, which counts. So a frame costs the comparison of
/// two numbers in memory, and no system call as asking for the process's number would be. A child
/// of a bare `clone` system call is not counted; it may not run any Rust code but `exec` anyway.
#[cfg(all(unix, not(miri)))]
mod forks {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static GENERATION: AtomicU32 = AtomicU32::new(0);

    /// Returns how many forks lie between this process and the one that began to watch.
    #[inline]
    pub(super) fn generation() -> u32 {
        // Forking orders memory: the child sees what its handler has stored.
        GENERATION.load(Ordering::Relaxed)
    }

    extern "C" fn count() {
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }

    /// Has forks counted from now on; false if the system has no memory for that.
    pub(super) fn watch() -> bool {
        static IS_WATCHED: OnceLock<bool> = OnceLock::new();
        *IS_WATCHED.get_or_init(|| {
            // SAFETY: `count` may run in a child of a process with several threads: it changes an
            // atomic number and calls nothing. It stays where it is for as long as the process may
            // fork: the C library forgets it when the library that it is a part of is unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(count)) == 0 }
        })
    }
}

/// Elsewhere there are no forks.
#[cfg(not(all(unix, not(miri))))]
mod forks {
    pub(super) fn generation() -> u32 {
        0
    }

    pub(super) fn watch() -> bool {
        true
    }
}
