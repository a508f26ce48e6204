//! Busy-polling of a worker's I/O thread while the application handles a request.
//!
//! A sleeping thread needs 30 to 50 us to wake up. If the application responds faster than that,
//! polling for a short time is quicker than sleeping.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::application::dispatch::Dispatch;

/// The maximum time of one poll. A handler that is faster than a thread's wake-up (30 to 50 us on
/// an idle machine) has responded by then.
const POLL_TIME: Duration = Duration::from_micros(50);

/// The maximum number of sleeps in a row before the thread polls again to find out whether polling
/// has become useful. A useless poll costs [`POLL_TIME`] of processor time, which other threads
/// could have used, although the thread yields to them first.
const MAX_SLEEPS: u32 = 64;

/// The decision whether the I/O thread polls instead of going to sleep. After each useless poll the
/// number of sleeps until the next poll doubles; a useful poll resets it.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// True in a worker. In other processes the thread also waits for clients, and each of their
    /// events wakes the application.
    is_enabled: bool,
    /// The number of sleeps until the next poll.
    sleeps: Cell<u32>,
    /// The value to which [`sleeps`](Self::sleeps) was set after the last poll.
    penalty: Cell<u32>,
    started: Notify,
}

impl BusyPoll {
    pub(super) fn new(is_enabled: bool) -> BusyPoll {
        BusyPoll { is_enabled, sleeps: Cell::new(0), penalty: Cell::new(0), started: Notify::new() }
    }

    /// Starts a poll if one is due, instead of the sleep that the thread is about to begin. Returns
    /// true if it did; the runtime then has a task to run. Otherwise the sleep is counted.
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

    /// Notes whether the last poll was useful. After a useless poll the thread sleeps twice as
    /// often as after the previous one.
    fn record_result(&self, was_useful: bool) {
        let penalty = if was_useful { 0 } else { (self.penalty.get() * 2).clamp(1, MAX_SLEEPS) };
        self.penalty.set(penalty);
        self.sleeps.set(penalty);
    }
}

/// Runs each poll that was started: yields the processor to other threads, checks the sockets, and
/// calls `run_app_commands` until that or the end of all requests makes the poll useful, or
/// [`POLL_TIME`] is over.
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

    /// Returns the number of sleeps before each of a series of polls, given whether each poll was
    /// useful.
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
