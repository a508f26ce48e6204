//! Whether the I/O thread of a worker stays awake while the application answers: what it has to wait for is shorter than to be woken.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::application::dispatch::Dispatch;

/// For how long: a handler that is quicker than a thread is woken (30 to 50 us on a machine with nothing else to do) has answered by then.
const POLL_TIME: Duration = Duration::from_micros(50);

/// How many sleeps are the most, in a row, before it is tried again whether it pays: a try in vain is [`POLL_TIME`] of processor time that
/// others could have had, though they are given it first.
const MAX_SLEEPS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// Elsewhere a client is waited for as well, and the application is woken by each that comes.
    is_enabled: bool,
    /// How many sleeps there are to be before it is tried again.
    sleeps: Cell<u32>,
    /// How many there were to be after the try before.
    penalty: Cell<u32>,
    started: Notify,
}

impl BusyPoll {
    pub(super) fn new(is_enabled: bool) -> BusyPoll {
        BusyPoll { is_enabled, sleeps: Cell::new(0), penalty: Cell::new(0), started: Notify::new() }
    }

    /// Whether the thread stays awake, instead of the sleep that it is about to begin: then there is a task to run.
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

    /// Whether that was worth it: where it was not, it sleeps, and twice as often as the last time.
    fn record_result(&self, was_useful: bool) {
        let penalty = if was_useful { 0 } else { (self.penalty.get() * 2).clamp(1, MAX_SLEEPS) };
        self.penalty.set(penalty);
        self.sleeps.set(penalty);
    }
}

/// Stays awake each time that is to be: gives the processor to whoever wants it, and looks at sockets and at what the application has
/// sent, which `run_app_commands` carries out.
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
            // The runtime looks at the sockets then, and at other tasks.
            tokio::task::yield_now().await;
            // The answer may have been delivered by another task.
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

    /// Sleeps before each of some tries.
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
        // One that has become quick again.
        assert_eq!(sleeps_before(&busy_poll, &[true, true, false, false]), [64, 0, 0, 1]);
        assert!(!BusyPoll::new(false).start_if_due());
    }
}
