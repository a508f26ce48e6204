//! The tasks of the I/O thread that clients can keep busy: connections, HTTP/2 streams, WebSockets
//! and acceptors.
//!
//! The runtime calls its hook before it sleeps, in which the I/O thread serves the application,
//! only if no task is ready. Clients that send without pause keep tasks ready for ever. The polls
//! of their tasks are therefore counted, and the application is also served after [`MAX_POLLS`]
//! polls, or after [`MAX_TIME`]. In each poll, a task reads and writes a limited number of bytes,
//! so these limits together bound the time that the application waits.
//!
//! The networks of the clients take [turns](super::turns).

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rookery_system::clock;
use tokio::task::JoinHandle;

use super::turns::{FREE_TIME, Ticket, Turns};

/// The maximum number of polls of clients' tasks between two times at which the I/O thread serves
/// the application.
// A poll usually takes at most 0.3 ms, so the application waits for at most 10 ms. Without a limit,
// two WebSockets that send pongs stop all responses.
pub(crate) const MAX_POLLS: u32 = 32;

/// The number of polls in a free round between two times at which the clock is read.
pub(crate) const POLLS_OF_CLOCK: u32 = 4;

/// The time that clients' tasks may take in a limited round between two times at which the I/O
/// thread serves the application. Far fewer than [`MAX_POLLS`] polls may take it.
const MAX_TIME: Duration = Duration::from_millis(5);

/// The number of bytes that a connection may write in one poll of its task before it lets other
/// tasks run. A client that reads as fast as the server writes would otherwise occupy the I/O
/// thread for a whole file.
const MAX_WRITTEN: usize = 1 << 20;

/// The processor time, in nanoseconds, after which a task in a limited round begins no other
/// request and no other write before other tasks have run. hyper would serve 16 pipelined requests
/// in one poll, and another client of the network would wait for such a poll of each connection.
const MAX_POLL_TIME: u64 = 50_000;

/// The number of bytes that a task may write at once in a limited round. This takes about
/// [`MAX_POLL_TIME`].
const MAX_WRITE: usize = 128 << 10;

thread_local! {
    static TURN: Turn = const {
        Turn {
            polls: Cell::new(0),
            written: Cell::new(0),
            round_polls: Cell::new(0),
            began: Cell::new(None),
            is_limited: Cell::new(false),
            has_counted: Cell::new(false),
            unserved: Cell::new(Duration::ZERO),
            poll_began: Cell::new(0),
            ticket: Cell::new(Ticket::new()),
            has_served: Cell::new(false),
            has_yielded: Cell::new(false),
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
    /// The number of polls of clients' tasks in the current round, which is a free one.
    round_polls: Cell<u32>,
    /// The time when the clock was first read in the current round, which is a free one.
    began: Cell<Option<Instant>>,
    /// True if the networks take turns in the current round.
    is_limited: Cell<bool>,
    /// True if the time of a network has been counted since the thread was last idle.
    has_counted: Cell<bool>,
    /// The time that clients' tasks have taken in limited rounds since the application was last
    /// served.
    unserved: Cell<Duration>,
    /// The processor time of the thread, in nanoseconds, when the current poll began, if the round
    /// is limited.
    poll_began: Cell<u64>,
    /// The ticket of the task that is being polled, if the round is limited.
    ticket: Cell<Ticket>,
    /// True if the current poll has served a request.
    has_served: Cell<bool>,
    /// True if the task that is being polled in a limited round has [yielded](yield_now).
    has_yielded: Cell<bool>,
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
    TURN.with(Turn::on_served);
}

/// Records that `n` bytes have been written in the current poll.
pub(crate) fn on_written(n: usize) {
    TURN.with(|turn| turn.written.set(turn.written.get().saturating_add(n)));
}

/// Returns the maximum number of bytes that the task may write at once, or `None` if others do not
/// wait.
#[inline]
pub(crate) fn write_limit() -> Option<usize> {
    TURN.with(|turn| turn.is_limited.get().then_some(MAX_WRITE))
}

/// Waits for the next poll of the task if it has written [`MAX_WRITTEN`] bytes in the current one,
/// or has written and taken [`MAX_POLL_TIME`]. Meanwhile, other tasks run.
#[inline]
pub(crate) fn poll_may_write(cx: &Context<'_>) -> Poll<()> {
    TURN.with(|turn| match turn.written.get() {
        0 => Poll::Ready(()),
        written if written < MAX_WRITTEN => turn.poll_has_time(cx),
        _ => {
            yield_now(cx);
            Poll::Pending
        }
    })
}

/// Waits for the next poll of the task before a request is served if the current poll has served
/// another one and taken [`MAX_POLL_TIME`]. Meanwhile, other tasks run.
#[inline]
pub(crate) fn poll_may_serve(cx: &mut Context<'_>) -> Poll<()> {
    TURN.with(
        |turn| {
            if turn.has_served.replace(true) { turn.poll_has_time(cx) } else { Poll::Ready(()) }
        },
    )
}

/// Wakes the task that is being polled, because it has work left after this poll. In a limited
/// round, the task thereby loses the [credit](super::turns) of an idle task.
pub(crate) fn yield_now(cx: &Context<'_>) {
    TURN.with(|turn| turn.has_yielded.set(true));
    cx.waker().wake_by_ref();
}

/// Takes the task which is being polled for one of `network` from its next poll on.
pub(crate) fn set_network(network: u64) {
    TURN.with(|turn| turn.network.set(network));
}

/// Begins a free round, because the thread has no task that is ready. No network owes any time.
pub(crate) fn on_idle() {
    TURN.with(|turn| {
        turn.begin_free_round();
        if turn.has_counted.take() {
            ROUNDS.with_borrow_mut(|rounds| rounds.turns.forget_time());
        }
    });
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
                TURN.with(Turn::begin_free_round);
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
    tokio::task::spawn_local(ClientTask { future, network, ticket: Ticket::new() })
}

/// Starts a task for a part of the work of the task that is being polled, for clients of `network`.
/// In a limited round, the parts of one task do not get more time than the task would.
pub(crate) fn spawn_part<F>(network: u64, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let ticket = TURN.with(|turn| {
        let mut whole = turn.ticket.get();
        let part = if turn.is_limited.get() { whole.begin_part() } else { Ticket::new() };
        turn.ticket.set(whole);
        part
    });
    tokio::task::spawn_local(ClientTask { future, network: Some(network), ticket })
}

/// A task that a client can keep busy, whose work is counted.
struct ClientTask<F> {
    /// The task's work. It is structurally pinned, because `ClientTask` has no `Drop`
    /// implementation, and the compiler derives its `Unpin`.
    future: F,
    network: Option<u64>,
    /// The time of its network that the task has used, and the place of the task while it waits.
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
            if turn.is_limited.get() || task.ticket.is_waiting() {
                return turn.poll_limited(task, cx);
            }
            let polled = turn.poll(task, cx);
            let polls = turn.round_polls.get() + 1;
            turn.round_polls.set(polls);
            if polls % POLLS_OF_CLOCK == 0 {
                turn.read_clock();
            }
            polled
        })
    }
}

impl Turn {
    #[inline]
    fn poll<F: Future>(&self, task: &mut ClientTask<F>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if self.polls.get() == MAX_POLLS {
            self.serve_application();
        }
        self.polls.set(self.polls.get() + 1);
        self.written.set(0);
        self.has_served.set(false);
        self.network.set(task.network.unwrap_or_default());
        // SAFETY: `future` is pinned whenever the task is, and stays where it is.
        let polled = unsafe { Pin::new_unchecked(&mut task.future) }.poll(cx);
        if task.network.is_some() {
            task.network = Some(self.network.get());
        }
        polled
    }

    /// Returns [`Poll::Pending`], and wakes the task, if the round is limited and the current poll
    /// has taken [`MAX_POLL_TIME`].
    #[inline]
    fn poll_has_time(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_limited.get() && self.has_taken_long() {
            yield_now(cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    #[cold]
    fn has_taken_long(&self) -> bool {
        clock::thread_nanoseconds().saturating_sub(self.poll_began.get()) >= MAX_POLL_TIME
    }

    /// Polls a task if its network has time in the current round. Otherwise, the task is woken in a
    /// later one.
    #[cold]
    fn poll_limited<F: Future>(
        &self,
        task: &mut ClientTask<F>,
        cx: &mut Context<'_>,
    ) -> Poll<F::Output> {
        let admits = |network| {
            ROUNDS.with_borrow_mut(|it| it.turns.admit(network, &mut task.ticket, cx.waker()))
        };
        if !task.network.is_none_or(admits) {
            // The task waits for the next round, also if the current one is free.
            self.begin_limit();
            return Poll::Pending;
        }
        // Before the clock is read, because the network does not owe this time.
        if self.unserved.get() >= MAX_TIME || self.polls.get() == MAX_POLLS {
            self.serve_application();
        }
        let (network, began) = (task.network, clock::thread_nanoseconds());
        self.poll_began.set(began);
        self.has_yielded.set(false);
        self.ticket.set(task.ticket);
        let polled = self.poll(task, cx);
        let taken = Duration::from_nanos(clock::thread_nanoseconds().saturating_sub(began));
        self.unserved.set(self.unserved.get().saturating_add(taken));
        if let Some(network) = network {
            self.has_counted.set(true);
            task.ticket = self.ticket.get();
            task.ticket.set_busy(self.has_yielded.get());
            ROUNDS.with_borrow_mut(|rounds| {
                rounds.turns.count(network, &mut task.ticket, taken);
                if let Some(after) = task.network.filter(|after| *after != network) {
                    rounds.turns.change_network(network, after, &mut task.ticket);
                }
            });
        }
        polled
    }

    /// Limits the time of each network in the rest of the round, and in later rounds, if this one
    /// has taken [`FREE_TIME`].
    fn read_clock(&self) {
        let now = Instant::now();
        match self.began.get() {
            None => self.began.set(Some(now)),
            Some(began) if now.saturating_duration_since(began) < FREE_TIME => {}
            Some(_) => self.begin_limit(),
        }
    }

    fn begin_free_round(&self) {
        self.round_polls.set(0);
        self.began.set(None);
        self.is_limited.set(false);
    }

    #[cold]
    fn begin_limit(&self) {
        self.is_limited.set(true);
        ROUNDS.with_borrow_mut(Rounds::request_end);
    }

    fn on_served(&self) {
        self.polls.set(0);
        self.unserved.set(Duration::ZERO);
    }

    #[cold]
    fn serve_application(&self) {
        self.on_served();
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
