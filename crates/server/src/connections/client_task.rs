//! The tasks of the I/O thread that clients can keep busy: connections, HTTP/2 streams, WebSockets
//! and acceptors.
//!
//! The runtime calls its hook before it sleeps, in which the I/O thread serves the application,
//! only if no task is ready. Clients that send without pause keep tasks ready for ever. The polls
//! of their tasks are therefore counted, and the application is also served after [`MAX_POLLS`]
//! polls. In each poll, a task reads and writes a limited number of bytes, so these limits together
//! bound the time that the application waits.
//!
//! The networks of the clients take [turns](super::turns).

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::task::JoinHandle;

use super::turns::{FREE_WORK, Ticket, Turns};

/// The maximum number of polls of clients' tasks between two times at which the I/O thread serves
/// the application.
// A poll takes at most about 0.3 ms, so the application waits for at most 10 ms. Without a limit,
// two WebSockets that send pongs stop all responses.
pub(crate) const MAX_POLLS: u32 = 32;

/// The number of bytes that a connection may write in one poll of its task before it lets other
/// tasks run. A client that reads as fast as the server writes would otherwise occupy the I/O
/// thread for a whole file.
const MAX_WRITTEN: usize = 1 << 20;

/// The number of bytes whose writing counts as a unit of work.
const BYTES_OF_UNIT: usize = 64 << 10;

thread_local! {
    static TURN: Turn = const {
        Turn {
            polls: Cell::new(0),
            written: Cell::new(0),
            work: Cell::new(0),
            network: Cell::new(0),
            serve: Cell::new(None),
        }
    };
    static ROUNDS: RefCell<Rounds> = RefCell::default();
}

/// The counters of the work that clients' tasks do on this thread.
struct Turn {
    /// The number of polls of clients' tasks since the application was last served.
    polls: Cell<u32>,
    /// The number of bytes that were written in the current poll.
    written: Cell<usize>,
    /// The work of the current round, in units.
    work: Cell<u32>,
    /// The network of the task that is being polled.
    network: Cell<u64>,
    /// The function that serves the application.
    serve: Cell<Option<fn()>>,
}

/// The turns of the networks, and the task that begins new rounds.
#[derive(Default)]
struct Rounds {
    turns: Turns,
    /// The waker of [`take_turns`], unless it has been woken for the current round.
    end: Option<Waker>,
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

/// Records that the task which is being polled has done `units` of work beside the poll.
pub(crate) fn on_work(units: u32) {
    TURN.with(|turn| turn.work.set(turn.work.get().saturating_add(units)));
}

/// Takes the task which is being polled for one of `network` from its next poll on.
pub(crate) fn set_network(network: u64) {
    TURN.with(|turn| turn.network.set(network));
}

/// Begins a free round, because the thread has no task that is ready.
pub(crate) fn on_idle() {
    TURN.with(|turn| turn.work.set(0));
}

/// Begins the rounds in which the networks take turns. Runs until it is dropped.
pub(crate) async fn take_turns() {
    poll_fn(|cx| {
        ROUNDS.with_borrow_mut(|rounds| {
            rounds.end = Some(cx.waker().clone());
            if rounds.turns.begin_round() {
                // The runtime's queue is first in, first out. The next round therefore begins when
                // the tasks that have just been woken have run.
                rounds.request_end();
            } else {
                on_idle();
            }
        });
        Poll::<()>::Pending
    })
    .await;
}

/// Starts a task that clients of `network` can keep busy, or clients of all networks if it is
/// `None`.
pub(crate) fn spawn<F>(network: Option<u64>, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(ClientTask { future, network, ticket: Ticket::default() })
}

/// A task that a client can keep busy, whose work is counted.
struct ClientTask<F> {
    /// The task's work. It is structurally pinned, because `ClientTask` has no `Drop`
    /// implementation, and the compiler derives its `Unpin`.
    future: F,
    network: Option<u64>,
    /// The task's ticket while it waits for the turn of its network.
    ticket: Ticket,
}

impl<F: Future> Future for ClientTask<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is not moved or returned unpinned below, and the other fields are never
        // pinned.
        let task = unsafe { self.get_unchecked_mut() };
        TURN.with(|turn| {
            let work = turn.work.get();
            if (work >= FREE_WORK || task.ticket.is_some())
                && !task.network.is_none_or(|network| admit(network, &mut task.ticket, cx))
            {
                return Poll::Pending;
            }
            if turn.polls.get() == MAX_POLLS {
                turn.serve_application();
            }
            turn.polls.set(turn.polls.get() + 1);
            turn.written.set(0);
            turn.work.set(work.saturating_add(1));
            turn.network.set(task.network.unwrap_or_default());
            // SAFETY: `future` is pinned whenever the task is, and stays where it is.
            let polled = unsafe { Pin::new_unchecked(&mut task.future) }.poll(cx);
            if turn.work.get().saturating_add(turn.units_written()) > FREE_WORK {
                turn.count(work, task.network);
            }
            if task.network.is_some() {
                task.network = Some(turn.network.get());
            }
            polled
        })
    }
}

/// Returns true if a task of `network` may run in the current round. Otherwise, the task is woken
/// in a later one.
#[cold]
fn admit(network: u64, ticket: &mut Ticket, cx: &Context<'_>) -> bool {
    ROUNDS.with_borrow_mut(|rounds| rounds.turns.admit(network, ticket, cx.waker()))
}

impl Turn {
    fn units_written(&self) -> u32 {
        (self.written.get() / BYTES_OF_UNIT) as u32
    }

    /// Counts the work of a poll, before which the round had had `before` units, for a network.
    #[cold]
    fn count(&self, before: u32, network: Option<u64>) {
        let units = self.work.get().saturating_sub(before).max(1) + self.units_written();
        self.work.set(before.saturating_add(units));
        ROUNDS.with_borrow_mut(|rounds| {
            rounds.request_end();
            if let Some(network) = network {
                // The first unit was counted when the task was admitted.
                rounds.turns.count(network, units - 1);
            }
        });
    }

    #[cold]
    fn serve_application(&self) {
        self.polls.set(0);
        if let Some(serve) = self.serve.get() {
            serve();
        }
    }
}

impl Rounds {
    /// Ends the current round when the tasks that are ready have run.
    fn request_end(&mut self) {
        if let Some(end) = self.end.take() {
            end.wake();
        }
    }
}
