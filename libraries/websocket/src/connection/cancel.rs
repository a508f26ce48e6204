//! Cancellation of a WebSocket connection's read by another task or thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use atomic_waker::AtomicWaker;

/// A handle with which another task can cancel the current or the next read of a WebSocket
/// connection. The read ends with [`Error::Cancelled`](crate::Error::Cancelled). The connection can
/// be read again afterwards.
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
    /// Creates a canceller that does not belong to a connection yet.
    pub(crate) fn new() -> Canceller {
        Canceller { shared: Arc::default() }
    }

    /// Cancels the read of the connection that is in progress. If there is none, cancels the next
    /// one.
    pub fn cancel(&self) {
        self.shared.is_cancelled.store(true, Ordering::Release);
        self.shared.waker.wake();
    }

    /// Returns true if the current or next read of the connection is to be cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns true if the current or next read of the connection is to be cancelled, and clears
    /// this flag.
    pub(crate) fn take(&self) -> bool {
        self.shared.is_cancelled.load(Ordering::Acquire)
            && self.shared.is_cancelled.swap(false, Ordering::AcqRel)
    }

    /// Registers the waker that is woken when a read is cancelled. Call [`Canceller::take`] after
    /// that, because the read may have been cancelled just before.
    pub(crate) fn register(&self, waker: &Waker) {
        self.shared.waker.register(waker);
    }

    /// Registers the waker of a read that has to wait. Returns true if the read is already
    /// cancelled.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        self.register(cx.waker());
        self.take()
    }
}
