//! Tests of the crate, except allocation counts (`tests/allocations.rs`, which needs an allocator
//! of its own).

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod convert;
mod drops;
mod hook;
mod layers;
mod macros;
mod repr;
mod request;
mod show;
#[cfg(feature = "tracing")]
mod tracing;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_error::{Error, ErrorHook, ErrorId};

/// An error with or without a source.
#[derive(Debug)]
struct Failure(&'static str, Option<Box<Failure>>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|source| source as &dyn std::error::Error)
    }
}

/// A hook that counts.
#[derive(Default)]
struct Count {
    thrown: AtomicUsize,
    cleared: AtomicUsize,
}

impl Count {
    fn new() -> (Arc<Count>, Arc<dyn ErrorHook>) {
        let count = Arc::<Count>::default();
        (Arc::clone(&count), count)
    }

    fn thrown(&self) -> usize {
        self.thrown.load(Ordering::Relaxed)
    }
}

impl ErrorHook for Count {
    fn throw(&self, _: Error) -> ErrorId {
        ErrorId::from(1 + self.thrown.fetch_add(1, Ordering::Relaxed))
    }

    fn clear(&self, _: &ErrorId) {
        self.cleared.fetch_add(1, Ordering::Relaxed);
    }
}
