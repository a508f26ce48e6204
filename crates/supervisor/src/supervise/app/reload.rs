//! Reloads, replacements of single workers, and changes of the number of workers.

use super::App;
use crate::supervise::replace_reason::ReplaceReason;
use crate::supervise::slot::Slot;
use crate::supervise::worker::{WorkerAction, WorkerPhase, counted};
use crate::supervise::{MOST_WORKERS, SupervisorConfig, SupervisorEvent, clock};
use rookery_status::ExitReason;

impl App<'_> {
    /// Sets another configuration for the workers that are started from now on. Its numbers of
    /// workers and spares take effect when the reload that follows has succeeded.
    pub(in crate::supervise) fn set_config(&mut self, config: SupervisorConfig) {
        self.pool.scaling.request(config.workers, config.spares);
        self.discard_preloaded();
        let before = &mut self.config;
        self.config = SupervisorConfig {
            folder: std::mem::take(&mut before.folder),
            files: before.files,
            log: before.log,
            warn: before.warn,
            is_on_terminal: before.is_on_terminal,
            ..config
        };
    }

    /// Begins a reload, which replaces all workers one after the other.
    pub(in crate::supervise) fn reload(&mut self) {
        if self.config.is_dev {
            // Workers that are starting have read the former files.
            let (times, log) = (self.config.times, self.config.log);
            for worker in self.pool.workers_mut().filter(|worker| worker.is_starting()) {
                let stop = WorkerAction::Stop(Some(ExitReason::Reload), times.stop);
                worker.carry_out(stop, times, log);
            }
        }
        self.log_sessions_to_close();
        self.log(&match self.pool.scaling.wanted() {
            1 => "reloading: the worker is replaced".to_owned(),
            workers => format!("reloading: {workers} workers are replaced one after the other"),
        });
        self.pool.begin_reload();
        self.begin_report();
    }

    /// Logs which sessions of older generations a reload will close: those of workers that still
    /// drain, since at most one worker of a slot waits long for its WebSockets.
    fn log_sessions_to_close(&self) {
        let drain = self.config.times.drain;
        let soon = clock::now() + drain;
        for worker in self.pool.workers() {
            let sockets = worker.process.backend.load().1;
            let WorkerPhase::Draining { sessions, .. } = worker.phase else { continue };
            if sockets > 0 && sessions > soon {
                self.log(&format!(
                    "reloading: {} of generation {} has {}, which will be closed within {} s after \
                     the worker has been replaced again",
                    worker.name(),
                    worker.start.generation,
                    counted(sockets as u64, "session"),
                    drain.as_secs_f64().ceil()
                ));
            }
        }
    }

    /// Refuses a reload: logs the reason and counts the reload as failed. A reload in progress
    /// continues.
    pub(in crate::supervise) fn refuse_reload(&mut self, reason: String) {
        self.warn(&format!("the reload is refused, and no worker is replaced: {reason}"));
        let was_running = self.reload.is_running;
        self.begin_report();
        self.end_report(Some(reason));
        if was_running {
            self.begin_report();
        }
    }

    /// Reports the beginning of a reload.
    fn begin_report(&mut self) {
        self.reload.is_running = true;
        self.frontend.on_event(SupervisorEvent::Reloading);
    }

    /// Reports the end of the reload in progress, with the error if it has failed. Does nothing if
    /// no reload is in progress.
    fn end_report(&mut self, error: Option<String>) {
        let reload = &mut self.reload;
        if !std::mem::take(&mut reload.is_running) {
            return;
        }
        *if error.is_some() { &mut reload.failed } else { &mut reload.succeeded } += 1;
        reload.last_error = error;
        self.frontend.on_event(SupervisorEvent::Reloaded);
    }

    /// Cancels the rest of a reload, because a worker has failed. Logs the failure, and what goes
    /// on.
    pub(super) fn fail_reload(&mut self, failure: String, what_goes_on: &str) {
        let what_goes_on = if self.pool.slots().iter().any(Slot::serves) {
            what_goes_on
        } else {
            "No worker is ready to serve"
        };
        self.warn(&format!("the reload has failed: {failure}. {what_goes_on}"));
        self.cancel_reload(failure);
    }

    /// Cancels the rest of a reload that has failed, and reports the reason.
    pub(super) fn cancel_reload(&mut self, reason: String) {
        self.pool.cancel_reload();
        self.end_report(Some(reason));
    }

    /// Reports that a reload has ended if no worker remains to be replaced for it. If all workers
    /// are ready, also applies the numbers of workers and spares that it has requested.
    pub(in crate::supervise) fn complete_reload(&mut self) {
        if self.pool.scaling.has_request() && self.pool.is_reloaded() {
            let before = self.pool.scaling.apply_request();
            let wanted = self.pool.scaling.wanted();
            (before..wanted).for_each(|workers| self.log_added(workers + 1));
            (wanted..before).rev().for_each(|workers| self.log_removed(workers));
            self.resize();
        }
        if !self.pool.is_replacing_for_reload() {
            self.end_report(None);
        }
    }

    // ---- replacements ----

    /// Returns true if the memory suffices for a new worker beside the old one in a slot. The new
    /// worker is expected to need as much memory as the old one had when it became ready. Logs a
    /// line with the reason of the replacement if the memory does not suffice.
    pub(super) fn has_memory_beside(&self, number: u32, reason: &str) -> bool {
        let slot = self.pool.slots().iter().find(|slot| slot.number == number);
        let current = slot.and_then(|slot| slot.current.as_ref());
        let Some(needed) = current.and_then(|it| it.process.memory_at_start) else { return true };
        let Some(left) = self.history.memory_left() else { return true };
        if needed > left {
            self.log(&format!(
                "worker {number} is replaced without overlap ({reason}): a second R process takes \
                 about {} MB, and the control group has {} MB left",
                needed / 1_000_000,
                left / 1_000_000
            ));
        }
        needed <= left
    }

    /// Starts a reserve worker in a slot while the current worker still serves there. Once the
    /// reserve worker is ready, it replaces the current one.
    pub(super) fn spawn_reserve(&mut self, number: u32) {
        let reserve = self.spawn(number);
        let Some(slot) = self.pool.slot_mut(number) else { return };
        // One that was preloaded for a later reload does not fit beside another reserve worker.
        slot.discard_preloaded();
        slot.reserve = reserve;
        if slot.reserve.is_none() && slot.on_reserve_not_started() {
            let failure = format!("the new worker {number} cannot be started");
            self.fail_reload(failure, "The previous workers keep serving");
        }
    }

    /// Drains the worker of a slot for its replacement. The new worker is started when the old one
    /// has ended.
    pub(super) fn drain_first(&mut self, number: u32, reason: ReplaceReason) {
        let (times, now) = (self.config.times, clock::now());
        if let Some(slot) = self.pool.slot_mut(number) {
            slot.drain_first(reason, times, now);
        }
        self.use_spares();
    }

    // ---- the number of workers ----

    /// Adds one worker, up to [`MOST_WORKERS`].
    pub(in crate::supervise) fn add_worker(&mut self) {
        if !self.pool.scaling.add_worker() {
            return self
                .log(&format!("no worker is added: {MOST_WORKERS} workers are the maximum"));
        }
        self.log_added(self.pool.scaling.wanted());
        self.resize();
    }

    /// Removes one worker, unless it is the last.
    pub(in crate::supervise) fn remove_worker(&mut self) {
        if !self.pool.scaling.remove_worker() {
            return self.log("no worker is removed: one worker is the minimum");
        }
        self.log_removed(self.pool.scaling.wanted());
        self.resize();
    }

    fn log_added(&self, workers: u32) {
        self.log(&format!("added one worker: {workers} in total"));
    }

    fn log_removed(&self, workers: u32) {
        self.log(&format!("removed one worker: {workers} in total"));
    }

    /// Adds or removes slots until there are as many as there should be. A ready spare goes into
    /// service at once, and the worker of a new slot becomes the spare.
    fn resize(&mut self) {
        self.pool.resize(self.config.times, clock::now());
        self.use_spares();
    }
}
