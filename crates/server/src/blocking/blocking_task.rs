//! Tasks that may block, such as file operations, spooling and compression. They run on a few
//! separate threads.
//!
//! The task itself, and not its client's connection, owns the [`Charge`](rookery_exchange::Charge)
//! that counts the task's memory against the memory budget. If a disk does not respond, the task
//! may exist for much longer than the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// A handle to a task that runs on a thread that may block. Dropping the handle cancels the task if
/// it has not started.
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
        // The thread that would have run the task drops what the task owns.
        self.0.abort();
    }
}
