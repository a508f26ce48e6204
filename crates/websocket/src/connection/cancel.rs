//! Cancelling a read from elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use atomic_waker::AtomicWaker;

/// Ends the read that waits, or the next one, with [`Error::Cancelled`](crate::Error::Cancelled). The connection stays as it
/// is and can be read again.
///
/// # Allocation
/// One, when it is made. A read looks at one flag; its waker is stored only while it waits.
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
    /// Makes one that cancels nothing until a connection looks at it.
    pub(crate) fn new() -> Canceller {
        Canceller { shared: Arc::default() }
    }

    /// Cancels one read.
    pub fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Release);
        self.shared.waker.wake();
    }

    /// Whether a read is to be cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Relaxed)
    }

    /// Whether a read was cancelled; asking takes the answer away.
    pub(crate) fn take(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Acquire)
            && self.shared.is_cancelled.swap(false, Ordering::AcqRel)
    }

    /// Wakes `cx` when it is cancelled. To be followed by [`Canceller::take`]: it may have come just before.
    pub(crate) fn register(&self, waker: &Waker) {
        self.shared.waker.register(waker);
    }

    /// The check of a read that has to wait.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        self.register(cx.waker());
        self.take()
    }
}
