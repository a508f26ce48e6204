//! The tasks of the I/O thread that clients can keep busy: connections, HTTP/2 streams, WebSockets
//! and acceptors.
//!
//! The runtime calls its hook before it sleeps, in which the I/O thread serves the application,
//! only if no task is ready. Clients that send without pause keep tasks ready for ever. The polls
//! of their tasks are therefore counted, and the application is also served after [`MAX_POLLS`]
//! polls. In each poll, a task reads and writes a limited number of bytes, so these limits together
//! bound the time that the application waits.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// The maximum number of polls of clients' tasks between two times at which the I/O thread serves
/// the application.
// A poll takes at most about 0.3 ms, so the application waits for at most 10 ms. Without a limit,
// two WebSockets that send pongs stop all responses.
pub(crate) const MAX_POLLS: u32 = 32;

/// The number of bytes that a connection may write in one poll of its task before it lets other
/// tasks run. A client that reads as fast as the server writes would otherwise occupy the I/O
/// thread for a whole file.
const MAX_WRITTEN: usize = 1 << 20;

thread_local! {
    static TURN: Turn = const {
        Turn { polls: Cell::new(0), written: Cell::new(0), serve: Cell::new(None) }
    };
}

/// The counters of the work that clients' tasks do on this thread.
struct Turn {
    /// The number of polls of clients' tasks since the application was last served.
    polls: Cell<u32>,
    /// The number of bytes that were written in the current poll.
    written: Cell<usize>,
    /// The function that serves the application.
    serve: Cell<Option<fn()>>,
}

/// Sets the function by which this thread serves the application when many tasks of clients have
/// been polled. The function must not panic.
pub(crate) fn set_serve(serve: fn()) {
    TURN.with(|turn| turn.serve.set(Some(serve)));
}

/// Records that the application has just been served.
pub(crate) fn on_served() {
    TURN.with(|turn| turn.polls.set(0));
}

/// Records that `n` bytes have been written in the current poll.
pub(crate) fn on_written(n: usize) {
    TURN.with(|turn| turn.written.set(turn.written.get().saturating_add(n)));
}

/// Waits for the next poll of the task if it has written [`MAX_WRITTEN`] bytes in the current one.
/// Meanwhile, other tasks run.
pub(crate) fn poll_may_write(cx: &Context<'_>) -> Poll<()> {
    if TURN.with(|turn| turn.written.get()) < MAX_WRITTEN {
        return Poll::Ready(());
    }
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Starts a task that a client can keep busy.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(ClientTask { future })
}

/// A task that a client can keep busy, whose polls are counted.
struct ClientTask<F> {
    /// The task's work. It is structurally pinned, because `ClientTask` has no `Drop`
    /// implementation, and the compiler derives its `Unpin`.
    future: F,
}

impl<F: Future> Future for ClientTask<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        TURN.with(|turn| {
            turn.written.set(0);
            if turn.polls.get() == MAX_POLLS {
                turn.serve_application();
            }
            turn.polls.set(turn.polls.get() + 1);
        });
        // SAFETY: `future` is pinned whenever `self` is, because it is never moved or returned
        // unpinned.
        unsafe { self.map_unchecked_mut(|task| &mut task.future) }.poll(cx)
    }
}

impl Turn {
    #[cold]
    fn serve_application(&self) {
        self.polls.set(0);
        if let Some(serve) = self.serve.get() {
            serve();
        }
    }
}
