//! Tasks on threads that may block, such as file access, spooling and compression.
//!
//! There are few such threads, so that tasks wait for long if a disk hangs, and the client may
//! disconnect in the meantime. Therefore a task owns the [`Charge`](rookery_exchange::Charge) for
//! the memory that it uses, until the task is done or dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// A task on a thread that may block. Dropping the value cancels the task unless it has begun.
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
        // If the task has not begun, the thread that would have run it drops the task and the
        // memory that it holds.
        self.0.abort();
    }
}
