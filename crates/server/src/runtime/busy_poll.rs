//! Busy-polling: while the application handles a request, a worker's I/O thread polls for a short
//! time instead of sleeping.
//!
//! A sleeping thread needs 30 to 50 us to wake up. If the application responds faster than that,
//! polling is quicker than sleeping.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::application::dispatch::Dispatch;

/// The maximum time for which the I/O thread polls instead of sleeping. A longer poll would not pay
/// off, because a sleeping thread wakes up in 30 to 50 us on an idle machine.
const POLL_TIME: Duration = Duration::from_micros(50);

/// The maximum number of sleeps of the I/O thread between two busy-polls (short times in which the
/// thread checks for events repeatedly instead of sleeping). After so many sleeps, it busy-polls
/// once to find out whether this has become useful. A useless busy-poll costs [`POLL_TIME`] of
/// processor time.
const MAX_SLEEPS: u32 = 64;

/// The state by which the I/O thread decides whether to poll (check for new events repeatedly) for
/// a short time before it sleeps. A poll is useful if the application sends a command during it, or
/// if no request is in flight any more. After each useless poll, the number of sleeps until the
/// next poll doubles. A useful poll resets it to 0.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// True if the process has a scoreboard (shared memory in which it publishes its counters), as
    /// every worker of a supervisor has. In other processes, the I/O thread never polls.
    // There it also waits for clients, and each event of a client wakes the application.
    is_enabled: bool,
    /// The number of times that the I/O thread still sleeps before it polls again.
    sleeps: Cell<u32>,
    /// The number of sleeps between the last poll and the next one. It doubles after each useless
    /// poll, and a useful poll sets it to 0.
    penalty: Cell<u32>,
    started: Notify,
}

impl BusyPoll {
    pub(super) fn new(is_enabled: bool) -> BusyPoll {
        BusyPoll { is_enabled, sleeps: Cell::new(0), penalty: Cell::new(0), started: Notify::new() }
    }

    /// If a poll is due, wakes the task that polls, so that the runtime does not sleep, and returns
    /// true. Otherwise, counts the sleep that the I/O thread is about to begin, and returns false.
    pub(super) fn start_if_due(&self) -> bool {
        if !self.is_enabled {
            return false;
        }
        let sleeps = self.sleeps.get();
        self.sleeps.set(sleeps.saturating_sub(1));
        if sleeps == 0 {
            self.started.notify_one();
        }
        sleeps == 0
    }

    /// Records whether the last poll was useful. After a useful poll, the I/O thread does not sleep
    /// before the next one. With each useless poll in a row, the number of sleeps before the next
    /// poll doubles.
    fn record_result(&self, was_useful: bool) {
        let penalty = if was_useful { 0 } else { (self.penalty.get() * 2).clamp(1, MAX_SLEEPS) };
        self.penalty.set(penalty);
        self.sleeps.set(penalty);
    }
}

/// Runs the polls of the I/O thread. Each poll repeatedly yields the processor to other threads,
/// checks the sockets, and calls `run_app_commands`. When the application has sent a command, or no
/// request is in flight any more, the poll ends and counts as useful. Otherwise it ends after
/// [`POLL_TIME`].
pub(super) async fn run(
    busy_poll: &BusyPoll,
    dispatch: &Dispatch,
    run_app_commands: impl Fn() -> bool,
) {
    loop {
        busy_poll.started.notified().await;
        let until = Instant::now() + POLL_TIME;
        let was_useful = loop {
            std::thread::yield_now();
            // The runtime checks the sockets and runs other tasks here.
            tokio::task::yield_now().await;
            // Another task may have delivered the response.
            if run_app_commands() || dispatch.in_flight() == 0 {
                break true;
            }
            if Instant::now() >= until {
                break false;
            }
        };
        busy_poll.record_result(was_useful);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one poll for each element of `useful`, and records the element as the result of the
    /// poll. Returns the number of sleeps before each poll.
    fn sleeps_before(busy_poll: &BusyPoll, useful: &[bool]) -> Vec<u32> {
        let sleeps = |was_useful: &bool| {
            let mut sleeps = 0;
            while !busy_poll.start_if_due() {
                sleeps += 1;
            }
            busy_poll.record_result(*was_useful);
            sleeps
        };
        useful.iter().map(sleeps).collect()
    }

    #[test]
    fn unsuccessful_polls_are_repeated_after_exponentially_more_sleeps() {
        let busy_poll = BusyPoll::new(true);
        assert_eq!(sleeps_before(&busy_poll, &[true, true, false, true, true]), [0, 0, 0, 1, 0]);
        assert_eq!(sleeps_before(&busy_poll, &[false; 10]), [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // The application has become fast again.
        assert_eq!(sleeps_before(&busy_poll, &[true, true, false, false]), [64, 0, 0, 1]);
        assert!(!BusyPoll::new(false).start_if_due());
    }
}
