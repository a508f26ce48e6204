//! Work on threads that may block: files, spools, compression.
//!
//! There are few of them, so where a disk stands still work waits for long, and the client that wanted it may leave
//! meanwhile. So what the work holds is charged with it: its [`Charge`](rookery_exchange::Charge) goes along and is given
//! back when the work has been done or thrown away.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// Work that has been handed over. Dropped, it is thrown away if it has not begun.
#[derive(Debug)]
pub(crate) struct BlockingTask<T>(JoinHandle<io::Result<T>>);

impl<T: Send + 'static> BlockingTask<T> {
    pub(crate) fn start(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> BlockingTask<T> {
        BlockingTask(tokio::task::spawn_blocking(work))
    }
}

impl<T> Future for BlockingTask<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|done| done.unwrap_or_else(|error| Err(io::Error::other(error))))
    }
}

impl<T> Drop for BlockingTask<T> {
    fn drop(&mut self) {
        // The thread that would have done it drops what it holds.
        self.0.abort();
    }
}
