//! The replacement of workers by new ones, for a reload or because of a limit of the recycle
//! policy.

mod reason;
mod recycle;
mod replacement_queue;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rookery_status::ExitReason;

use crate::restart_backoff::RestartBackoff;
pub(crate) use reason::ReplaceReason;
pub use recycle::{MemoryLimit, RecyclePolicy};
pub(crate) use recycle::{MemoryWatch, WorkerUsage};
use replacement_queue::ReplacementQueue;

/// A worker whose replacement is due, or the empty slot (numbered place) of a worker that has
/// ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplacedWorker {
    /// Whether there is a worker to replace. It may have ended meanwhile.
    pub(crate) exists: bool,
    /// Whether the worker to replace serves and is ready.
    pub(crate) serves: bool,
    /// Whether the server has fewer serving workers than it should have.
    pub(crate) is_short_of_workers: bool,
}

/// The way in which the replacement of a worker begins. The number in each variant is that of the
/// worker's slot (its numbered place).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplacementStep {
    /// The worker to replace has ended. A new worker is started at once, without the pause of the
    /// restart back-off, because a reload may have repaired the app.
    StartWorker(u32),
    /// The new worker is started while the old one still serves, if the memory suffices for both.
    StartBesideOld(u32, ReplaceReason),
    /// The old worker is drained first, and the new one is started when the old one has ended.
    DrainFirst(u32, ReplaceReason),
}

/// The consequence of a failed replacement, in which the new worker ended before it was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedReplacement {
    /// The memory did not suffice for the new worker beside the old one, so the old worker is
    /// drained first.
    DrainFirst(ReplaceReason),
    /// The failed worker was started for an earlier reload. The later reload continues, because it
    /// may load a repaired app.
    ReloadContinues,
    /// The reload has failed, because a new worker ended before it was ready.
    ReloadFailed,
    /// The old worker keeps serving. Its replacement is tried again later.
    OldWorkerStays,
}

/// The role that an ended worker had in the replacement of a worker. No other worker runs in its
/// slot (its numbered place).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplacementExit {
    /// The ended worker was not part of a replacement in progress.
    Unrelated,
    /// The ended worker was drained for its replacement, which can start now.
    OldWorker,
    /// The ended worker was the new one and has failed. `is_reload` is true if it was part of a
    /// reload.
    NewWorker { is_reload: bool },
}

/// The replacements of workers that are queued and in progress, and the progress of a reload.
#[derive(Debug, Default)]
pub(crate) struct Replacing {
    queue: ReplacementQueue,
    /// The number of reloads that have begun, which is the generation of workers that are started
    /// now.
    generation: u64,
    /// Whether a reload has begun and its completion has not been logged yet.
    is_reload_unreported: bool,
    /// The back-off after failed replacements, by the number of the worker's slot.
    backoffs: BTreeMap<u32, ReplacementBackoff>,
}

/// The back-off after failed replacements of the worker in one slot (a worker's numbered place).
#[derive(Debug, Default)]
struct ReplacementBackoff {
    pauses: RestartBackoff,
    /// The time before which the worker is not replaced because of its requests, age or memory.
    until: Option<Instant>,
}

impl Replacing {
    /// Returns the generation of workers that are started now, which is the number of reloads that
    /// have begun.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns true if a worker is still to be replaced for a reload.
    pub(crate) fn is_reloading(&self) -> bool {
        self.queue.is_reloading()
    }

    /// Begins a reload, which replaces the workers of these slots (the workers' numbered places) in
    /// this order.
    pub(crate) fn begin_reload(&mut self, slots: Vec<u32>) {
        self.generation += 1;
        self.is_reload_unreported = true;
        self.queue.reload(slots);
    }

    /// Cancels the rest of a reload that has failed.
    pub(crate) fn cancel_reload(&mut self) {
        self.is_reload_unreported = false;
        self.queue.cancel_reload();
    }

    /// Returns the number of the last reload if that reload is complete and its number has not been
    /// returned before. `is_all_of_generation(number)` must return true if all workers are ready
    /// and were started after the reload with this number.
    pub(crate) fn take_completed_reload(
        &mut self,
        is_all_of_generation: impl FnOnce(u64) -> bool,
    ) -> Option<u64> {
        let is_complete = self.is_reload_unreported
            && !self.queue.is_reloading()
            && is_all_of_generation(self.generation);
        if is_complete {
            self.is_reload_unreported = false;
        }
        is_complete.then_some(self.generation)
    }

    /// Returns true if the replacement of the worker in this slot (its numbered place) may be
    /// queued: none is queued or in progress, and no back-off after a failed replacement is
    /// running.
    pub(crate) fn may_replace(&self, slot: u32, now: Instant) -> bool {
        let is_delayed = |backoff: &ReplacementBackoff| backoff.until.is_some_and(|at| now < at);
        !self.queue.has(slot) && !self.backoffs.get(&slot).is_some_and(is_delayed)
    }

    /// Queues the replacement of the worker in this slot, which is its numbered place.
    pub(crate) fn add(&mut self, slot: u32, reason: ReplaceReason) {
        self.queue.add(slot, reason);
    }

    /// Begins the next replacement of a worker. Returns `None` if none is queued, one is in
    /// progress, or the next one has to wait. `surges` is true if a new worker may run beside the
    /// old one, and `worker(slot)` describes the worker to replace.
    pub(crate) fn next(
        &mut self,
        surges: bool,
        worker: impl FnOnce(u32) -> ReplacedWorker,
    ) -> Option<ReplacementStep> {
        let (slot, reason) = self.queue.first()?;
        let worker = worker(slot);
        // Without overlap, the replacement would take one more worker out of service while too few
        // serve, and the new worker might fail as the others do. A reload does not wait, since it
        // may repair the others.
        let is_reload = reason == ReplaceReason::Reload;
        if !surges && !is_reload && worker.serves && worker.is_short_of_workers {
            return None;
        }
        self.queue.next();
        if !worker.exists {
            if surges || !is_reload {
                self.queue.finish(slot);
            }
            // In a reload without overlap, this replacement stays in progress until the new worker
            // is ready. If the app is still broken, the workers that serve are then not drained.
            return Some(ReplacementStep::StartWorker(slot));
        }
        Some(if surges {
            ReplacementStep::StartBesideOld(slot, reason)
        } else {
            ReplacementStep::DrainFirst(slot, reason)
        })
    }

    /// Handles a worker that has become ready in a slot (its numbered place). `is_last` is true if
    /// no further worker is being started in the slot. In that case, a replacement in progress
    /// there is complete, and its reason is returned.
    pub(crate) fn on_ready(&mut self, slot: u32, is_last: bool) -> Option<ReplaceReason> {
        if is_last { self.queue.finish(slot) } else { None }
    }

    /// Ends the back-off after failed replacements in this slot (a worker's numbered place),
    /// because a replacement has succeeded or the slot is used for another worker.
    pub(crate) fn reset_backoff(&mut self, slot: u32) {
        self.backoffs.remove(&slot);
    }

    /// Handles a new worker that could not be started beside the old one. Returns true if the
    /// replacement was part of a reload.
    pub(crate) fn on_start_failed(&mut self, slot: u32) -> bool {
        self.queue.finish(slot) == Some(ReplaceReason::Reload)
    }

    /// Handles the end of the only worker in its slot (its numbered place), and returns the role
    /// that the worker had in a replacement. `exit_reason` is the reason that was known before the
    /// end.
    pub(crate) fn on_exit(
        &mut self,
        slot: u32,
        exit_reason: Option<ExitReason>,
    ) -> ReplacementExit {
        let Some(reason) = self.queue.current_of(slot) else { return ReplacementExit::Unrelated };
        if exit_reason == Some(reason.exit_reason()) {
            return ReplacementExit::OldWorker;
        }
        self.queue.finish(slot);
        ReplacementExit::NewWorker { is_reload: reason == ReplaceReason::Reload }
    }

    /// Handles the end of a new worker that ran beside the old one and was not ready yet. Returns
    /// how the replacement continues. `slot` is the new worker's numbered place, `epoch` the number
    /// of its start, and `generation` the number of reloads before its start. `has_no_memory` is
    /// true if the new worker was killed because memory ran out.
    pub(crate) fn on_successor_exit(
        &mut self,
        (slot, epoch, generation): (u32, u64, u64),
        has_no_memory: bool,
        now: Instant,
    ) -> FailedReplacement {
        if let Some(reason) = self.queue.current_of(slot).filter(|_| has_no_memory) {
            return FailedReplacement::DrainFirst(reason);
        }
        // The reason for the replacement persists, so without a pause a new R process would be
        // started every second.
        let backoff = self.backoffs.entry(slot).or_default();
        let pause = backoff.pauses.on_exit(Duration::ZERO, false, now, epoch);
        backoff.until = Some(now + pause.time);
        match self.queue.finish(slot) {
            Some(ReplaceReason::Reload) if generation < self.generation => {
                FailedReplacement::ReloadContinues
            }
            Some(ReplaceReason::Reload) => FailedReplacement::ReloadFailed,
            _ => FailedReplacement::OldWorkerStays,
        }
    }

    /// Removes all replacements in this slot (a worker's numbered place), because no further worker
    /// is started in it.
    pub(crate) fn remove_slot(&mut self, slot: u32) {
        self.queue.remove_slot(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVES: ReplacedWorker =
        ReplacedWorker { exists: true, serves: true, is_short_of_workers: false };
    const MISSING: ReplacedWorker =
        ReplacedWorker { exists: false, serves: false, is_short_of_workers: true };
    const RELOAD: ReplaceReason = ReplaceReason::Reload;

    #[test]
    fn a_reload_replaces_one_worker_after_the_other_and_is_completed_once() {
        let mut replacing = Replacing::default();
        replacing.begin_reload(vec![0, 1]);
        assert_eq!(
            replacing.next(true, |_| SERVES),
            Some(ReplacementStep::StartBesideOld(0, RELOAD))
        );
        assert_eq!(replacing.next(true, |_| SERVES), None);
        assert_eq!(replacing.on_ready(0, true), Some(RELOAD));
        assert_eq!(replacing.take_completed_reload(|_| true), None);
        assert_eq!(
            replacing.next(true, |_| SERVES),
            Some(ReplacementStep::StartBesideOld(1, RELOAD))
        );
        assert_eq!(replacing.on_ready(1, true), Some(RELOAD));
        assert_eq!(replacing.take_completed_reload(|_| false), None);
        assert_eq!(replacing.take_completed_reload(|generation| generation == 1), Some(1));
        assert_eq!(replacing.take_completed_reload(|_| true), None);
    }

    #[test]
    fn without_overlap_the_old_worker_is_drained_first() {
        let mut replacing = Replacing::default();
        replacing.begin_reload(vec![0]);
        assert_eq!(replacing.next(false, |_| SERVES), Some(ReplacementStep::DrainFirst(0, RELOAD)));
        assert_eq!(replacing.on_exit(1, Some(ExitReason::Reload)), ReplacementExit::Unrelated);
        assert_eq!(replacing.on_exit(0, Some(ExitReason::Reload)), ReplacementExit::OldWorker);
        assert!(replacing.is_reloading());
        // The new worker ends before it is ready.
        assert_eq!(replacing.on_exit(0, None), ReplacementExit::NewWorker { is_reload: true });
        assert!(!replacing.is_reloading());
    }

    #[test]
    fn without_overlap_a_recycled_worker_waits_while_too_few_serve_and_a_reload_does_not() {
        let mut replacing = Replacing::default();
        let too_few = ReplacedWorker { is_short_of_workers: true, ..SERVES };
        replacing.add(0, ReplaceReason::Requests(5));
        assert_eq!(replacing.next(false, |_| too_few), None);
        assert!(!replacing.may_replace(0, Instant::now()));
        replacing.begin_reload(vec![0]);
        assert_eq!(
            replacing.next(false, |_| too_few),
            Some(ReplacementStep::DrainFirst(0, RELOAD))
        );
    }

    #[test]
    fn a_missing_worker_is_started_and_holds_up_only_a_reload_without_overlap() {
        for surges in [true, false] {
            let mut replacing = Replacing::default();
            replacing.begin_reload(vec![0, 1]);
            assert_eq!(replacing.next(surges, |_| MISSING), Some(ReplacementStep::StartWorker(0)));
            assert_eq!(replacing.next(surges, |_| SERVES).is_some(), surges);
        }
    }

    #[test]
    fn a_failed_replacement_is_delayed_until_a_new_worker_serves() {
        let (mut replacing, now) = (Replacing::default(), Instant::now());
        replacing.add(0, ReplaceReason::Requests(5));
        replacing.next(true, |_| SERVES);
        assert_eq!(
            replacing.on_successor_exit((0, 1, 0), false, now),
            FailedReplacement::OldWorkerStays
        );
        assert!(!replacing.may_replace(0, now));
        assert!(replacing.may_replace(0, now + Duration::from_secs(1)));
        replacing.reset_backoff(0);
        assert!(replacing.may_replace(0, now));
    }

    #[test]
    fn a_failed_worker_fails_its_reload_unless_a_later_one_has_begun() {
        let (mut replacing, now) = (Replacing::default(), Instant::now());
        replacing.begin_reload(vec![0]);
        replacing.next(true, |_| SERVES);
        assert_eq!(
            replacing.on_successor_exit((0, 5, 1), true, now),
            FailedReplacement::DrainFirst(RELOAD)
        );
        assert_eq!(
            replacing.on_successor_exit((0, 5, 1), false, now),
            FailedReplacement::ReloadFailed
        );
        replacing.begin_reload(vec![0]);
        replacing.next(true, |_| SERVES);
        replacing.begin_reload(vec![0]);
        assert_eq!(
            replacing.on_successor_exit((0, 6, 2), false, now),
            FailedReplacement::ReloadContinues
        );
        assert!(replacing.is_reloading());
        replacing.cancel_reload();
        assert!(!replacing.is_reloading());
        assert_eq!(replacing.take_completed_reload(|_| true), None);
    }
}
