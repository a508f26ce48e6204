//! The rollout of new workers, which coordinates reloads, replacements of single workers, and
//! changes of the number of workers.

use rookery_status::{ExitReason, Reload};

use super::Frontend;
use super::clock;
use super::replacing::{FailedReplacement, ReplaceReason, ReplacementExit, Replacing};
use super::reporting::ReloadReport;
use super::scaling::{Scaling, ScalingStep};
use super::worker::ExitedWorker;
use super::workers::Workers;

/// The rollout of new workers: the replacements in progress, the progress of a reload, and the
/// numbers of workers.
pub(super) struct Rollout<'a> {
    pub(super) scaling: Scaling,
    pub(super) replacing: Replacing,
    report: ReloadReport<'a>,
}

impl<'a> Rollout<'a> {
    /// Creates a rollout without a reload. `frontend` gets the events of later reloads.
    pub(super) fn new(scaling: Scaling, frontend: &'a dyn Frontend) -> Rollout<'a> {
        let report = ReloadReport::new(frontend);
        Rollout { scaling, replacing: Replacing::default(), report }
    }

    /// Returns the report about the current or last reload.
    pub(super) fn reload(&self) -> &Reload {
        self.report.reload()
    }

    /// Begins a reload, which replaces all workers one after the other. `surges` is true if a new
    /// worker may run beside the old one.
    pub(super) fn begin_reload(&mut self, workers: &Workers, surges: bool, log: fn(&str)) {
        log(&match self.scaling.wanted() {
            1 => "reloading: the worker is replaced".to_owned(),
            workers => format!("reloading: {workers} workers are replaced one after the other"),
        });
        // Without overlap, slots whose workers serve come last, so that these workers stay if the
        // app is broken.
        let mut slots: Vec<u32> = workers.kept_slots().collect();
        if !surges {
            slots.sort_by_key(|slot| workers.serves(*slot));
        }
        self.replacing.begin_reload(slots);
        self.report.begin();
    }

    /// Refuses a reload: logs the reason and counts the reload as failed. A reload in progress
    /// continues.
    pub(super) fn refuse_reload(&mut self, reason: String, log: fn(&str)) {
        log(&format!("the reload is refused, and no worker is replaced: {reason}"));
        self.report.refuse(reason);
    }

    /// Cancels the rest of a reload that has failed, and reports the reason.
    pub(super) fn fail_reload(&mut self, reason: String) {
        self.scaling.cancel_request();
        self.replacing.cancel_reload();
        self.report.end(Some(reason));
    }

    /// Logs that a reload is complete, once all its workers are ready. Logs this only once, and
    /// then returns true.
    pub(super) fn log_completed_reload(&mut self, workers: &Workers, log: fn(&str)) -> bool {
        let completed = self
            .replacing
            .take_completed_reload(|generation| workers.is_all_of_generation(generation));
        if let Some(generation) = completed {
            log(&format!("reloaded: all workers are of generation {generation}"));
        }
        completed.is_some()
    }

    /// Reports that the reload has ended, if no replacement for it remains.
    pub(super) fn complete_reload(&mut self) {
        if !self.replacing.is_reloading() {
            self.report.end(None);
        }
    }

    /// Returns the changes of the numbers of workers and spares that a reload has requested, once
    /// all workers have been reloaded.
    pub(super) fn take_scaling_steps(&mut self, workers: &Workers) -> Vec<ScalingStep> {
        // Checked first, because this is called in each iteration of the main loop.
        if !self.scaling.has_request()
            || self.replacing.is_reloading()
            || !workers.is_all_of_generation(self.replacing.generation())
        {
            return Vec::new();
        }
        self.scaling.apply_request()
    }

    /// Handles the end of the only worker in its slot (its numbered place). Returns true if the
    /// ended worker had been drained for a new worker, which can start now. If the ended worker was
    /// itself the new one and part of a reload, the reload has failed.
    pub(super) fn on_exit(&mut self, exited: &ExitedWorker, log: fn(&str)) -> bool {
        let slot = exited.process.start.slot;
        let role = self.replacing.on_exit(slot, exited.process.exit_reason);
        if role == (ReplacementExit::NewWorker { is_reload: true }) {
            let failure = exited.failed_start();
            log(&format!(
                "the reload has failed: {failure}. The workers that were not replaced keep serving"
            ));
            self.fail_reload(failure);
        }
        role == ReplacementExit::OldWorker
    }

    /// Handles the end of a new worker that ran beside the old one and was not ready yet. Normally
    /// returns `None`. If the control group had no memory left for the new worker, returns the
    /// reason of the replacement, so that the caller can drain the old worker first and try again.
    pub(super) fn on_successor_exit(
        &mut self,
        exited: &ExitedWorker,
        log: fn(&str),
    ) -> Option<ReplaceReason> {
        let (name, start) = (exited.name(), exited.process.start);
        let has_no_memory = exited.reason == ExitReason::OutOfMemory;
        let failure = exited.failed_start();
        let successor = (start.slot, start.epoch, start.generation);
        match self.replacing.on_successor_exit(successor, has_no_memory, clock::now()) {
            FailedReplacement::DrainFirst(reason) => {
                log(&format!(
                    "the new {name} was killed because the control group had no memory left: \
                     worker {} is replaced without overlap ({reason})",
                    start.slot
                ));
                return Some(reason);
            }
            FailedReplacement::ReloadContinues => log(&format!(
                "{failure}. The previous worker keeps serving until the next reload replaces it"
            )),
            FailedReplacement::ReloadFailed => {
                log(&format!(
                    "the reload has failed: {failure}. The previous workers keep serving"
                ));
                self.fail_reload(failure);
            }
            FailedReplacement::OldWorkerStays => {
                log(&format!("{failure}. The previous worker keeps serving"));
            }
        }
        None
    }
}
