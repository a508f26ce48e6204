//! Atomics that count the stores of a thread to the shared memory, so that tests can stop the
//! thread after any of them, as SIGKILL would stop its process.

use std::cell::Cell;
use std::sync::atomic::Ordering;

pub(crate) use std::sync::atomic::{AtomicUsize, fence};

thread_local! {
    /// The number of stores after which this thread is stopped, or `None` if it is not stopped.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The payload of the panic by which a thread is stopped after a store.
#[derive(Debug)]
pub(crate) struct Killed;

/// Runs `work`, and stops `work` after `stores` stores to the shared memory. Returns `None` if
/// `work` was stopped.
pub(crate) fn stop_after<T>(stores: usize, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(stores));
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    LEFT.set(None);
    match result {
        Ok(value) => Some(value),
        Err(cause) if cause.is::<Killed>() => None,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

/// Stops this thread by a panic if it has made the last of the stores that it may make.
pub(crate) fn after_store() {
    match LEFT.get() {
        None => {}
        // Unlike `panic!`, this prints no message and calls no hook.
        Some(1) => std::panic::resume_unwind(Box::new(Killed)),
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

macro_rules! counted {
    ($name:ident, $number:ty) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(std::sync::atomic::$name);

        impl $name {
            pub(crate) fn store(&self, value: $number, order: Ordering) {
                self.0.store(value, order);
                after_store();
            }
        }

        impl std::ops::Deref for $name {
            type Target = std::sync::atomic::$name;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

counted!(AtomicU64, u64);
counted!(AtomicU32, u32);
