//! Cancellation of a read from elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use atomic_waker::AtomicWaker;

/// A handle that ends the current or the next read of a connection with
/// [`Error::Cancelled`](crate::Error::Cancelled). The connection can be read again after that.
///
/// # Allocation
/// Creating the first handle allocates once. A read checks one flag, and stores a waker only while
/// it waits.
#[derive(Debug, Clone)]
pub struct Canceller {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_cancelled: AtomicBool,
    waker: AtomicWaker,
}

impl Canceller {
    /// Makes a handle that no connection checks yet.
    pub(crate) fn new() -> Canceller {
        Canceller { shared: Arc::default() }
    }

    /// Cancels one read.
    pub fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Release);
        self.shared.waker.wake();
    }

    /// Returns true if a read is to be cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns true if a read is to be cancelled, and clears the flag.
    pub(crate) fn take(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Acquire)
            && self.shared.is_cancelled.swap(false, Ordering::AcqRel)
    }

    /// Registers a waker to be woken on cancellation. Call [`Canceller::take`] after that, because
    /// the cancellation may have come just before.
    pub(crate) fn register(&self, waker: &Waker) {
        self.shared.waker.register(waker);
    }

    /// Registers a read that has to wait, and returns true if it is already cancelled.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        self.register(cx.waker());
        self.take()
    }
}
