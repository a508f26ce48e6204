//! The slot of a worker: a numbered place, which the next worker takes over when the worker ends.
//! The slot also records failed starts of its workers.

use std::time::{Duration, Instant};

use crate::process::Exit;
use crate::restart_backoff::{Pause, RestartBackoff};

/// The exit status of a start that failed with an error of the configuration, which another start
/// cannot fix (`EX_CONFIG` of sysexits.h).
const CONFIG_ERROR_STATUS: i32 = 78;

/// The slot of a worker: a numbered place, which the next worker process takes over when the worker
/// ends. The slot records the failed starts.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The epoch (the number of the start) of the worker that serves in the slot, or will serve
    /// once it is ready.
    pub(super) current: Option<u64>,
    /// The epoch (the number of the start) of the new worker that replaces the current one as soon
    /// as the new one is ready.
    pub(super) successor: Option<u64>,
    /// The time at which the next worker is started in the slot, or `None` if no start is
    /// scheduled.
    pub(super) start_at: Option<Instant>,
    /// Whether no worker is started in the slot any more, because the number of workers was
    /// reduced.
    pub(super) is_given_up: bool,
    /// Whether a worker has ever been started in the slot.
    pub(super) was_started: bool,
    backoff: RestartBackoff,
    /// The number of worker processes in the slot that ended before they were ready.
    failed_starts: u32,
    /// Whether the last failed start was due to an error of the configuration, which another start
    /// cannot fix.
    is_misconfigured: bool,
}

/// The failure of a worker process, which has to be started again.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerFailure {
    /// The epoch of the failed worker process, which is the number of its start.
    pub(super) epoch: u64,
    /// The time from the start of the worker process to its failure.
    pub(super) life: Duration,
    /// Whether the failed worker process has responded to any request.
    pub(super) has_answered: bool,
    /// Whether the worker process failed while it was starting, or while no worker had ever been
    /// ready.
    pub(super) is_failed_start: bool,
    /// The exit status of the worker process, or the signal that ended it.
    pub(super) exit: Exit,
}

impl Slot {
    /// Returns a slot (a worker's numbered place) in which a worker is to be started at `time`.
    pub(super) fn starting_at(time: Instant) -> Slot {
        Slot { start_at: Some(time), ..Slot::default() }
    }

    /// Handles the failure of a worker process in the slot. Schedules the next start, and returns
    /// the pause before it.
    pub(super) fn on_failure(&mut self, failure: WorkerFailure, now: Instant) -> Pause {
        let WorkerFailure { epoch, life, has_answered, is_failed_start, exit } = failure;
        self.failed_starts += u32::from(is_failed_start);
        self.is_misconfigured = is_failed_start && exit == Exit::Status(CONFIG_ERROR_STATUS);
        let pause = if is_failed_start {
            self.backoff.on_failed_start(now, epoch)
        } else {
            self.backoff.on_exit(life, has_answered, now, epoch)
        };
        self.start_at = Some(now + pause.time);
        pause
    }

    /// Handles the failure to start a worker process in the slot: counts it, and schedules the next
    /// start.
    pub(super) fn on_start_error(&mut self, epoch: u64, now: Instant) {
        self.failed_starts += 1;
        let pause = self.backoff.on_failed_start(now, epoch);
        self.start_at = Some(now + pause.time);
    }

    /// Ends the restart back-off of the slot, because a worker has served in it.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff = RestartBackoff::default();
    }

    /// Returns the number of starts in the slot that ended before the worker was ready.
    pub(super) fn failed_starts(&self) -> u32 {
        self.failed_starts
    }

    /// Returns true if no worker may be started in the slot any more, because more than `retries`
    /// starts have failed or the slot has been given up.
    pub(super) fn has_no_start_left(&self, retries: u32) -> bool {
        self.failed_starts > retries || self.is_given_up
    }

    /// Returns true if the last failed start in the slot was due to an error of the configuration,
    /// which another start cannot fix.
    pub(super) fn is_misconfigured(&self) -> bool {
        self.is_misconfigured
    }

    /// Returns true if the workers of the slot end repeatedly without having answered a request.
    /// `life` is the age of the current worker, which has not answered a request.
    pub(super) fn is_in_crash_loop(&self, life: Duration) -> bool {
        self.backoff.is_loop(life)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_uses_up_a_retry_and_schedules_another() {
        let (mut slot, now) = (Slot::default(), Instant::now());
        let failure = WorkerFailure {
            epoch: 1,
            life: Duration::ZERO,
            has_answered: false,
            is_failed_start: true,
            exit: Exit::Status(1),
        };
        let pause = slot.on_failure(failure, now);
        assert_eq!(slot.start_at, Some(now + pause.time));
        assert!(!slot.has_no_start_left(1) && slot.has_no_start_left(0));
        slot.on_start_error(2, now);
        assert!(slot.has_no_start_left(1) && slot.failed_starts() == 2);
        assert!(!slot.is_misconfigured());
        slot.on_failure(WorkerFailure { exit: Exit::Status(78), ..failure }, now);
        assert!(slot.is_misconfigured());
    }

    /// A start that times out takes longer than a minute, which is no long life.
    #[test]
    fn starts_that_time_out_are_a_crash_loop() {
        let (mut slot, now) = (Slot::default(), Instant::now());
        let life = Duration::from_secs(61);
        for epoch in 1..=10 {
            let failure = WorkerFailure {
                epoch,
                life,
                has_answered: false,
                is_failed_start: true,
                exit: Exit::Signal(libc::SIGTERM),
            };
            let pause = slot.on_failure(failure, now + life * u32::try_from(epoch).unwrap());
            assert!(pause.time > Duration::ZERO);
        }
        assert!(slot.is_in_crash_loop(Duration::ZERO));
    }

    #[test]
    fn a_failure_of_a_worker_that_was_ready_is_no_failed_start() {
        let mut slot = Slot::default();
        let failure = WorkerFailure {
            epoch: 1,
            life: Duration::ZERO,
            has_answered: true,
            is_failed_start: false,
            exit: Exit::Status(78),
        };
        slot.on_failure(failure, Instant::now());
        assert!(slot.failed_starts() == 0 && !slot.is_misconfigured());
    }
}
