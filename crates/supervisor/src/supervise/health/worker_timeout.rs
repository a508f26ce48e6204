//! The worker timeout. A worker whose R process is busy with one task for too long is stopped. If
//! configured, R is interrupted first.

use std::time::{Duration, Instant};

use rookery_worker_protocol::RState;

use super::{Observation, TaskLimit};

/// The time within which R must leave its task after an interrupt. Error handlers and `on.exit()`
/// code of the app may need some of it.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the worker timeout for one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerTimeout {
    /// The time at which R began the task that was interrupted, and the time of the interrupt.
    interrupted: Option<(u64, Instant)>,
    /// The last time at which the worker's process was found stopped by a signal or a debugger. The
    /// time limit of a task begins anew then, because R could not work on the task.
    stopped_at: Option<Instant>,
}

/// The step that the worker timeout requires for a worker whose R process may be busy for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeoutStep {
    /// The worker timeout requires nothing now.
    Nothing,
    /// R has to be interrupted, because it has been busy with one task for this time.
    Interrupt(Duration),
    /// The worker can get requests again, because R has left the interrupted task.
    Resume,
    /// The worker has to be stopped, because R has been busy with one task for this time.
    Stop(Duration),
    /// The worker has to be stopped, because R is still busy after the interrupt.
    StopInterrupted,
}

impl WorkerTimeout {
    /// Returns the step that the worker timeout requires for a worker. `is_stopped` queries whether
    /// its process is stopped by a signal or a debugger.
    pub(super) fn check(
        &mut self,
        limit: TaskLimit,
        seen: &Observation,
        is_stopped: impl FnOnce() -> bool,
    ) -> TimeoutStep {
        let Observation { scoreboard, now, scoreboard_time: time, .. } = *seen;
        let is_busy = scoreboard.r_state != RState::Starting && !scoreboard.is_idle(time);
        if let Some((since, at)) = self.interrupted {
            if !is_busy || scoreboard.since != since {
                self.interrupted = None;
                return TimeoutStep::Resume;
            }
            return if now.duration_since(at) >= INTERRUPT_TIMEOUT {
                TimeoutStep::StopInterrupted
            } else {
                TimeoutStep::Nothing
            };
        }
        let busy = scoreboard.elapsed(time);
        if !is_busy || busy < limit.time {
            return TimeoutStep::Nothing;
        }
        // Checked last, because the check reads a file in `/proc`.
        if is_stopped() {
            self.stopped_at = Some(now);
        }
        if self.stopped_at.is_some_and(|at| now.duration_since(at) < limit.time) {
            return TimeoutStep::Nothing;
        }
        if !limit.interrupts {
            return TimeoutStep::Stop(busy);
        }
        self.interrupted = Some((scoreboard.since, now));
        TimeoutStep::Interrupt(busy)
    }

    /// Returns true if the worker's R process has been interrupted and has not left its task.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use rookery_worker_protocol::{SharedScoreboard, Snapshot};

    use super::super::WorkerName;
    use super::*;

    const MOST: Duration = Duration::from_secs(60);
    const INTERRUPTS: TaskLimit = TaskLimit { time: MOST, interrupts: true };
    const SECOND: u64 = 1_000_000_000;

    fn scoreboard(r: RState, since: u64) -> Snapshot {
        let scoreboard = SharedScoreboard::private();
        Snapshot { r_state: r, since: since * SECOND, ..scoreboard.read() }
    }

    fn at(start: Instant, scoreboard: Snapshot, second: u64) -> Observation {
        Observation {
            worker: WorkerName { slot: 0, pid: 1 },
            scoreboard,
            now: start + Duration::from_secs(second),
            scoreboard_time: second * SECOND,
        }
    }

    #[test]
    fn r_is_interrupted_and_stopped_if_it_stays_busy() {
        let start = Instant::now();
        let mut timeout = WorkerTimeout::default();
        let mut check = |scoreboard: Snapshot, second: u64| {
            timeout.check(INTERRUPTS, &at(start, scoreboard, second), || false)
        };
        let busy = scoreboard(RState::Busy, 10);
        assert_eq!(check(busy, 69), TimeoutStep::Nothing);
        assert_eq!(check(busy, 70), TimeoutStep::Interrupt(MOST));
        assert_eq!(check(busy, 74), TimeoutStep::Nothing);
        assert_eq!(check(scoreboard(RState::Busy, 74), 74), TimeoutStep::Resume);
        // The next task has a timeout of its own.
        assert_eq!(check(scoreboard(RState::Busy, 74), 75), TimeoutStep::Nothing);
        assert_eq!(check(scoreboard(RState::Busy, 74), 134), TimeoutStep::Interrupt(MOST));
        assert_eq!(check(scoreboard(RState::Idle, 136), 136), TimeoutStep::Resume);
        assert_eq!(check(scoreboard(RState::Busy, 140), 200), TimeoutStep::Interrupt(MOST));
        assert_eq!(check(scoreboard(RState::Busy, 140), 205), TimeoutStep::StopInterrupted);
    }

    #[test]
    fn without_interrupts_the_worker_is_stopped_at_once() {
        let start = Instant::now();
        let mut timeout = WorkerTimeout::default();
        let mut check = |second: u64| {
            let limit = TaskLimit { time: MOST, interrupts: false };
            timeout.check(limit, &at(start, scoreboard(RState::Busy, 10), second), || false)
        };
        assert_eq!(check(69), TimeoutStep::Nothing);
        assert_eq!(check(70), TimeoutStep::Stop(MOST));
        assert!(!timeout.is_interrupted());
    }

    #[test]
    fn only_a_request_or_a_callback_counts_as_busy() {
        let start = Instant::now();
        for (r, expected) in [
            (scoreboard(RState::Starting, 0), TimeoutStep::Nothing),
            (scoreboard(RState::Idle, 100), TimeoutStep::Nothing),
            // R has not renewed its idle state for 90 seconds, so it runs a callback of `later`.
            (scoreboard(RState::Idle, 10), TimeoutStep::Interrupt(Duration::from_secs(90))),
            (scoreboard(RState::Busy, 100), TimeoutStep::Nothing),
        ] {
            let seen = at(start, r, 100);
            let step = WorkerTimeout::default().check(INTERRUPTS, &seen, || false);
            assert_eq!(step, expected, "{r:?}");
        }
    }

    #[test]
    fn the_time_for_which_the_process_was_stopped_does_not_count() {
        let start = Instant::now();
        let mut timeout = WorkerTimeout::default();
        let busy = scoreboard(RState::Busy, 0);
        let mut check = |second: u64, is_stopped: bool| {
            timeout.check(INTERRUPTS, &at(start, busy, second), || is_stopped)
        };
        assert_eq!(check(500, true), TimeoutStep::Nothing);
        assert_eq!(check(559, false), TimeoutStep::Nothing);
        assert_eq!(check(560, false), TimeoutStep::Interrupt(Duration::from_secs(560)));
    }
}
