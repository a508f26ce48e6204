//! The atomics of loom, and a futex that consists of locks of loom.

use std::sync::atomic::Ordering;

use loom::sync::{Condvar, Mutex};

pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, fence};

/// A word for which a thread can wait.
#[derive(Debug)]
pub(crate) struct AtomicU32 {
    word: loom::sync::atomic::AtomicU32,
    waiting: Mutex<u32>,
    woken: Condvar,
}

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> AtomicU32 {
        let word = loom::sync::atomic::AtomicU32::new(value);
        AtomicU32 { word, waiting: Mutex::new(0), woken: Condvar::new() }
    }

    /// Stores a value by an exchange. Both sides write the word, and loom orders two writes only if
    /// one of them has read the other. After a plain store, loom would let a load return a value
    /// that an exchange has replaced long ago.
    pub(crate) fn store(&self, value: u32, order: Ordering) {
        self.word.swap(value, order);
    }
}

impl std::ops::Deref for AtomicU32 {
    type Target = loom::sync::atomic::AtomicU32;

    fn deref(&self) -> &Self::Target {
        &self.word
    }
}

/// `rookery_system::linux::shared_wait` without its timeout, so that a lost wake-up is a deadlock,
/// which loom reports.
pub(crate) mod shared_wait {
    use super::{AtomicU32, Ordering};

    pub(crate) fn wait(word: &AtomicU32, expected: u32, _timeout: std::time::Duration) {
        // The system compares the word while it holds the lock of its list of sleepers.
        let mut waiting = word.waiting.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        *waiting += 1;
        while *waiting > 0 {
            waiting = word.woken.wait(waiting).unwrap();
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the function that it stands for")]
    pub(crate) fn wake(word: &AtomicU32) -> std::io::Result<()> {
        let mut waiting = word.waiting.lock().unwrap();
        *waiting = waiting.saturating_sub(1);
        word.woken.notify_one();
        Ok(())
    }
}
