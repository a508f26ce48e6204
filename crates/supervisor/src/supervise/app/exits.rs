//! What happens when workers end, and the end of the app.

use std::time::Instant;

use rookery_status::{ExitReason, last_r_task};
use rookery_worker_protocol::Message;

use super::App;
use crate::process::reap;
use crate::supervise::slot::{AfterExit, Ending, SlotRole};
use crate::supervise::worker::{ExitedWorker, Handle as _, Worker};
use crate::supervise::{Outcome, SupervisorEvent, clock};

impl App<'_> {
    /// Reaps the worker with this epoch and process id, and schedules the start of another one in
    /// its place where needed. Returns the outcome with which the server has to end, or `None` if
    /// it continues.
    pub(in crate::supervise) fn on_exit(
        &mut self,
        epoch: u64,
        pid: libc::pid_t,
    ) -> Option<Outcome> {
        let end = reap(pid);
        let (mut worker, role) = self.pool.take(epoch)?;
        let now = clock::now();
        if worker.is_gated() {
            self.last_output.spawn_local(worker.process.clean_up());
            return None;
        }
        let route = last_r_task(&worker.process.backend.scoreboard);
        // Before the pool closes the worker's WebSockets, which are counted.
        let (reason, last_exit) = self.history.on_exit(&worker, end.exit);
        // Early, because requests that the worker had in flight wait for this.
        self.registry.remove(&worker.process.backend);
        worker.on_start_end(reason);
        let number = worker.start.slot;
        if let Some(slot) = self.pool.slot_mut(number) {
            slot.last_exit = Some(last_exit);
        }
        let is_failed_start = self.config.is_dev
            && worker.has_failed_to_start()
            && worker.start.generation == self.pool.generation();
        // A reload may have stopped the worker after it has shown its error.
        let is_stopped = self.config.is_dev
            && worker.exit_reason == Some(ExitReason::Reload)
            && self.pool.reload().is_some();
        let has_report = is_failed_start || is_stopped;
        let report = if has_report { worker.process.start_report() } else { None };
        self.last_output.spawn_local(worker.process.clean_up());
        if self.outcome.is_some() {
            return None;
        }
        if worker.is_serving {
            self.use_spares();
        }
        let has_no_memory = reason == ExitReason::OutOfMemory;
        let ending = Ending { exit: end.exit, has_no_memory, at: now };
        let after = self.pool.after_exit(&worker, role, ending);
        let is_retried = matches!(after, AfterExit::StartNext | AfterExit::StartReserve);
        let is_failure = (is_failed_start && role != SlotRole::Former && !is_retried)
            || (is_stopped && report.is_some());
        if is_failure {
            let (exit, report) = (end.exit.to_string(), report.as_ref());
            self.is_failure_reported = true;
            self.frontend.on_event(SupervisorEvent::StartFailed { exit: &exit, report });
        }
        let exited = ExitedWorker { worker, end, reason, route };
        let failure = exited.failed_start();
        let outcome = exited.outcome(self.config.restarts, self.was_ready);
        match after {
            AfterExit::StartReserve => self.spawn_reserve(number),
            // A preloaded worker has ended by itself, as it should.
            AfterExit::StartNext if is_failed_start => {}
            AfterExit::StartNext | AfterExit::Nothing => self.log(&exited.requested_exit_line()),
            // A reload during development has stopped the worker, which was still starting.
            AfterExit::ReloadContinues | AfterExit::Replaced
                if exited.worker.exit_reason == Some(ExitReason::Reload) =>
            {
                self.log(&exited.requested_exit_line());
            }
            AfterExit::DrainFirst(reason) => {
                self.warn(&format!(
                    "the new {} was killed because the control group had no memory left: worker \
                     {number} is replaced without overlap ({reason})",
                    exited.name()
                ));
                self.drain_first(number, reason);
            }
            AfterExit::ReserveFailed => {
                self.warn(&format!("{failure}. The previous worker keeps serving"));
            }
            AfterExit::ReloadContinues => self.warn(&format!(
                "{failure}. The previous worker keeps serving until the next reload replaces it"
            )),
            AfterExit::ReloadFailed => {
                self.fail_reload(failure, "The previous workers keep serving");
            }
            AfterExit::Replaced | AfterExit::Failed { .. } if outcome.is_some() => {
                self.warn(&exited.last_line());
                return outcome;
            }
            AfterExit::Replaced => {
                // The starting replacement will serve as soon as it is ready, which completes the
                // replacement.
                self.failures.add(now);
                self.warn(&exited.replaced_line());
            }
            AfterExit::Failed { fails_reload } => {
                if fails_reload {
                    self.fail_reload(failure, "The workers that were not replaced keep serving");
                }
                self.failures.add(now);
                self.restart(&exited, ending);
            }
        }
        None
    }

    /// Schedules the start of another worker in place of a failed one, or ends the server if no
    /// start is left to try.
    fn restart(&mut self, exited: &ExitedWorker, ending: Ending) {
        let was_ready = self.was_ready;
        let Some(slot) = self.pool.slot_mut(exited.worker.start.slot) else { return };
        let pause = slot.on_failure(&exited.worker, ending, was_ready);
        let starts = slot.failed_starts;
        if self.config.is_dev && exited.worker.has_failed_to_start() {
            slot.start_at = None;
            self.cancel_reload(exited.failed_start());
            return self.log(&format!(
                "{}: it is started again when a file of the app changes",
                exited.failed_start()
            ));
        }
        if self.is_hopeless() {
            self.warn(&exited.never_ready_line(starts));
            return self.end(Outcome::NeverReady, ending.at);
        }
        // All workers usually fail in the same way, so one line is logged for each round of starts,
        // and none for the last round.
        let slots = self.pool.slots().iter();
        let failed_as_often = slots.filter(|slot| slot.failed_starts >= starts).count();
        if was_ready || (failed_as_often <= 1 && starts <= self.config.start_retries) {
            self.warn(&exited.restart_line(pause.time));
            if pause.is_new_loop {
                self.warn(&exited.crash_loop_line());
            }
        }
        self.end_if_crash_loop(ending.at);
    }

    /// Returns true if no worker has ever been ready and no start is left to try, because all
    /// retries have been used up or because a start has failed with an error of the configuration.
    pub(super) fn is_hopeless(&self) -> bool {
        !self.was_ready
            && !self.config.is_dev
            && self.pool.has_no_start_left(self.config.start_retries)
    }

    /// Ends the server if [`SupervisorConfig::fails_fast`](crate::SupervisorConfig::fails_fast) is
    /// true and all workers end repeatedly without having answered a request.
    pub(super) fn end_if_crash_loop(&mut self, now: Instant) {
        if self.config.fails_fast && self.pool.is_in_crash_loop(now) {
            self.end(Outcome::CrashLoop, now);
        }
    }

    // ---- the end of the app ----

    /// Returns the outcome with which the server ends when no worker is left. Returns `None` until
    /// all workers are stopped.
    pub(in crate::supervise) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Stops all workers, so that the server ends with `outcome` when none is left. Until the time
    /// `until`, R may finish its current task. A second call has no effect.
    pub(in crate::supervise) fn end(&mut self, outcome: Outcome, until: Instant) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(outcome);
        self.registry.refuse_requests();
        self.preload_at = None;
        let (time, now) = (self.config.times.stop, clock::now());
        for worker in self.pool.workers_mut() {
            worker.exit_reason.get_or_insert(ExitReason::ServerStop);
            worker.process.leave_service();
            if now < until {
                worker.end(Message::Drain, time, Some(until), now);
            } else {
                worker.end(Message::Stop, time, None, now);
            }
        }
    }

    /// Kills all workers.
    pub(in crate::supervise) fn kill_all(&mut self) {
        self.pool.workers_mut().for_each(Worker::kill);
    }

    /// Cancels the scheduled starts of workers.
    pub(in crate::supervise) fn cancel_starts(&mut self) {
        self.pool.slots_mut().iter_mut().for_each(|slot| slot.start_at = None);
    }

    /// Waits for a limited time until the last output of ended workers has been forwarded, and
    /// returns the last error message that a worker wrote when its start failed, and how often
    /// the start of a worker has failed.
    pub(in crate::supervise) async fn finish_output(&mut self) -> Option<(String, u32)> {
        while self.last_output.join_next().await.is_some() {}
        self.origin.output.message().map(|message| (message, self.pool.failed_starts()))
    }
}
