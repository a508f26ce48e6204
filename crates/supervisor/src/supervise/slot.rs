//! A slot: the numbered place of a worker, which its replacement takes over.

use std::time::{Duration, Instant};

use rookery_status::{ExitReason, LastExit};

use super::Timeouts;
use super::replace_reason::ReplaceReason;
use super::worker::{Handle, Process, Worker, WorkerPhase};
use crate::process::Exit;
use rookery_system::restart_backoff::{Pause, RestartBackoff};

/// The exit status of a start that failed with an error of the configuration, which another start
/// cannot fix (`EX_CONFIG` of sysexits.h).
const CONFIG_ERROR_STATUS: i32 = 78;

/// The exit status of a preloaded worker whose packages have been installed again since it has
/// loaded them.
const STALE_STATUS: i32 = 79;

/// The slot of a worker, with the workers that it has at present.
///
/// The replacement of the current worker is pending while [`due`](Slot::due) returns a reason, and
/// in progress while there is a reason in [`replacing`](Slot::replacing). With overlap, the reserve
/// worker starts, becomes ready, and takes over the slot, while the worker before it is drained.
/// Without overlap, the current worker is drained first, and the next one starts when it has ended.
#[derive(Debug)]
pub(super) struct Slot<P = Process> {
    pub(super) number: u32,
    /// The worker that has the slot: it is in service or a spare, or will be once it is ready.
    pub(super) current: Option<Worker<P>>,
    /// The reserve worker, which takes over the slot once it is ready. A preloaded one is started
    /// before there is a reason, and waits at its gate.
    pub(super) reserve: Option<Worker<P>>,
    /// The workers that have been replaced or removed and have not ended yet.
    pub(super) former: Vec<Worker<P>>,
    /// The generation of the last start in the slot. A reload replaces the current worker of a slot
    /// with an older generation.
    pub(super) generation: u64,
    /// The time at which the next worker is started in the slot, or `None` if no start is
    /// scheduled.
    pub(super) start_at: Option<Instant>,
    /// The limit for which the current worker is to be replaced.
    pub(super) exceeded: Option<ReplaceReason>,
    /// The reason of the replacement in progress.
    pub(super) replacing: Option<ReplaceReason>,
    /// Whether no worker is started in the slot any more, because the number of workers was
    /// reduced.
    pub(super) is_removed: bool,
    /// The number of starts in the slot.
    pub(super) starts: u64,
    pub(super) last_exit: Option<LastExit>,
    backoff: RestartBackoff,
    /// The number of workers in the slot that ended before they were ready.
    pub(super) failed_starts: u32,
    /// Whether the last failed start was due to an error of the configuration, which another start
    /// cannot fix.
    pub(super) is_misconfigured: bool,
    /// The back-off after failed replacements, and the time before which the worker is not replaced
    /// again because of a limit.
    replacement_backoff: (RestartBackoff, Option<Instant>),
}

/// The role that an ended worker had in its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotRole {
    /// The worker had been replaced before, or the number of workers had been reduced.
    Former,
    /// The worker was in reserve and should have replaced the current one.
    Reserve,
    /// The worker had the slot. If `is_replaced` is true, the reserve worker has been started
    /// already, and now has the slot.
    Current { is_replaced: bool },
}

/// The consequence of a worker's end for its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterExit {
    /// Nothing: the worker had been replaced or removed before.
    Nothing,
    /// The reserve worker, which is starting already, has the slot now.
    Replaced,
    /// Another worker is started at once, because the one that ended was drained for this, or
    /// because its preloaded packages were no longer those of the library.
    StartNext,
    /// Another reserve worker is started at once, because the preloaded packages of the one that
    /// ended were no longer those of the library.
    StartReserve,
    /// The memory did not suffice for the reserve worker beside the current one, which is therefore
    /// drained first.
    DrainFirst(ReplaceReason),
    /// The reserve worker has failed. The current worker stays, and its replacement is tried again
    /// later.
    ReserveFailed,
    /// The reserve worker has failed, but was started for an earlier reload. The later reload
    /// continues, because it may load a repaired app.
    ReloadContinues,
    /// The reserve worker has failed, and with it the reload.
    ReloadFailed,
    /// The worker has failed, and another one has to be started. If `fails_reload` is true, it was
    /// the new worker in a reload without overlap.
    Failed { fails_reload: bool },
}

/// How a worker has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub(super) exit: Exit,
    /// Whether the worker was killed because memory ran out.
    pub(super) has_no_memory: bool,
    /// The time of the end.
    pub(super) at: Instant,
}

impl<P: Handle> Slot<P> {
    /// Creates a slot in which a worker is to be started at `time`.
    pub(super) fn new(number: u32, time: Instant) -> Slot<P> {
        Slot {
            number,
            current: None,
            reserve: None,
            former: Vec::new(),
            generation: 0,
            start_at: Some(time),
            exceeded: None,
            replacing: None,
            is_removed: false,
            starts: 0,
            last_exit: None,
            backoff: RestartBackoff::default(),
            failed_starts: 0,
            is_misconfigured: false,
            replacement_backoff: Default::default(),
        }
    }

    /// Returns all workers of the slot.
    pub(super) fn workers(&self) -> impl Iterator<Item = &Worker<P>> {
        self.current.iter().chain(&self.reserve).chain(&self.former)
    }

    /// Returns mutable references to all workers of the slot.
    pub(super) fn workers_mut(&mut self) -> impl Iterator<Item = &mut Worker<P>> {
        self.current.iter_mut().chain(&mut self.reserve).chain(&mut self.former)
    }

    /// Returns true if a worker is being started in the slot that will replace the current one.
    pub(super) fn has_successor(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| !reserve.is_gated())
    }

    /// Returns true if the current worker is in service and ready.
    pub(super) fn serves(&self) -> bool {
        self.current.as_ref().is_some_and(Worker::serves)
    }

    // ---- replacements ----

    /// Returns the reason for which the current worker is to be replaced, or for which a worker is
    /// to be started if the slot has none. `reload` is the generation of a reload in progress.
    pub(super) fn due(&self, reload: Option<u64>) -> Option<ReplaceReason> {
        if self.is_removed {
            return None;
        }
        let is_old = reload.is_some_and(|generation| self.generation < generation);
        if is_old { Some(ReplaceReason::Reload) } else { self.exceeded }
    }

    /// Returns true if the limits of the current worker may be checked: no replacement is pending
    /// or in progress, and no back-off after a failed one is running.
    pub(super) fn may_exceed(&self, reload: Option<u64>, now: Instant) -> bool {
        self.due(reload).is_none()
            && self.replacing.is_none()
            && self.replacement_backoff.1.is_none_or(|until| now >= until)
    }

    /// Records that the current worker exceeds a limit, so that it is to be replaced. The
    /// replacement waits until no former worker is left, whose drain is shortened for this.
    pub(super) fn exceed(&mut self, reason: ReplaceReason, times: Timeouts, now: Instant) {
        self.exceeded = Some(reason);
        self.shorten_drains(times, now);
    }

    /// Returns true if a replacement for this reason has to wait for a former worker to end. A
    /// slot has at most one former worker that was replaced because of a limit, since a client can
    /// keep a former worker by its WebSockets, and make the current one exceed its limit. A reload
    /// does not wait, since it may repair the app.
    pub(super) fn waits_for_former(&self, reason: ReplaceReason) -> bool {
        reason != ReplaceReason::Reload && !self.former.is_empty()
    }

    /// Begins the replacement that is due. If the slot has no worker, one is started now, without
    /// the pause of the back-off, because a reload may have repaired the app.
    pub(super) fn begin_replacement(
        &mut self,
        reason: ReplaceReason,
        generation: u64,
        surges: bool,
        now: Instant,
    ) {
        (self.generation, self.exceeded) = (generation, None);
        let is_missing = self.current.is_none();
        if is_missing {
            self.start_at = Some(now);
        }
        // In a reload without overlap, the start of a missing worker is in progress until the
        // worker is ready. If the app is still broken, the workers that serve are then not drained.
        if !is_missing || (!surges && reason == ReplaceReason::Reload) {
            self.replacing = Some(reason);
        }
    }

    /// Drains the current worker. Its replacement is started when it has ended.
    pub(super) fn drain_first(&mut self, reason: ReplaceReason, times: Timeouts, now: Instant) {
        if let Some(old) = &mut self.current {
            old.exit_reason = Some(reason.exit_reason());
            // No other worker serves in the slot until the old one has ended, so WebSockets get no
            // extra time.
            old.drain(times.without_sessions(), now);
        }
    }

    /// Handles a worker of the slot that has become ready. It takes over the slot if it was in
    /// reserve, and the worker before it is drained. `is_short` is true if too few workers serve.
    pub(super) fn on_ready(&mut self, epoch: u64, is_short: bool, times: Timeouts, now: Instant) {
        let is_it = |worker: &&mut Worker<P>| worker.start.epoch == epoch;
        let replaces_serving = self.serves();
        if let Some(reserve) = self.reserve.as_mut().filter(is_it) {
            if replaces_serving || is_short {
                reserve.enter_service();
            }
            self.replacement_backoff = Default::default();
            self.shorten_drains(times, now);
            let reason = self.replacing.take();
            if let Some(mut old) = std::mem::replace(&mut self.current, self.reserve.take()) {
                old.exit_reason = reason.map(ReplaceReason::exit_reason);
                // A worker that exceeds its memory limit must not keep the memory for as long as
                // its WebSockets last.
                let is_large = matches!(reason, Some(ReplaceReason::Memory(_)));
                old.drain(if is_large { times.without_sessions() } else { times }, now);
                self.former.push(old);
            }
        } else if let Some(current) = self.current.as_mut().filter(is_it) {
            if is_short {
                current.enter_service();
            }
            if !self.has_successor() {
                self.replacing = None;
            }
        }
    }

    /// Shortens the drains of former workers, so that at most one worker of the slot waits long for
    /// its WebSockets. Otherwise several reloads within a few hours would leave several old R
    /// processes running.
    fn shorten_drains(&mut self, times: Timeouts, now: Instant) {
        self.former.iter_mut().for_each(|worker| worker.shorten_drain(times, now));
    }

    /// Handles a reserve worker that could not be started. The current worker keeps serving, so
    /// the pause after the failed start applies to the next replacement for a limit. Returns true
    /// if the replacement was part of a reload.
    pub(super) fn on_reserve_not_started(&mut self) -> bool {
        self.replacement_backoff.1 = self.start_at.take();
        self.replacing.take() == Some(ReplaceReason::Reload)
    }

    /// Drains the workers of the slot and prevents further starts in it.
    pub(super) fn remove(&mut self, times: Timeouts, now: Instant) {
        self.is_removed = true;
        (self.start_at, self.exceeded, self.replacing) = (None, None, None);
        self.shorten_drains(times, now);
        for mut worker in self.reserve.take().into_iter().chain(self.current.take()) {
            worker.exit_reason.get_or_insert(ExitReason::ScaleDown);
            worker.drain(times, now);
            self.former.push(worker);
        }
    }

    /// Kills the preloaded worker, because it cannot be used.
    pub(super) fn discard_preloaded(&mut self) {
        if let Some(mut gated) = self.reserve.take_if(|reserve| reserve.is_gated()) {
            gated.kill();
            self.former.push(gated);
        }
    }

    // ---- ends ----

    /// Removes a worker that has ended, and returns it with the role that it had.
    pub(super) fn take(&mut self, epoch: u64) -> Option<(Worker<P>, SlotRole)> {
        let is_it = |worker: &mut Worker<P>| worker.start.epoch == epoch;
        if let Some(worker) = self.reserve.take_if(is_it) {
            return Some((worker, SlotRole::Reserve));
        }
        if let Some(worker) = self.current.take_if(is_it) {
            let is_replaced = self.has_successor();
            if is_replaced {
                self.current = self.reserve.take();
            }
            return Some((worker, SlotRole::Current { is_replaced }));
        }
        let at = self.former.iter().position(|worker| worker.start.epoch == epoch)?;
        let worker = self.former.remove(at);
        if worker.process.responses() > 0 {
            // The worker served until it was replaced, so earlier failures are no crash loop.
            self.backoff = RestartBackoff::default();
        }
        Some((worker, SlotRole::Former))
    }

    /// Returns what follows from the end of a worker that had this role. `generation` is that of
    /// the pool.
    pub(super) fn after_exit(
        &mut self,
        worker: &Worker<P>,
        role: SlotRole,
        ending: Ending,
        generation: u64,
    ) -> AfterExit {
        let is_of_earlier_reload = worker.start.generation < generation;
        // Any app may end with this status, and an app that always does must not be started again
        // at once.
        let is_stale = worker.was_preloaded
            && worker.has_failed_to_start()
            && !is_of_earlier_reload
            && ending.exit == Exit::Status(STALE_STATUS);
        match role {
            SlotRole::Former => AfterExit::Nothing,
            SlotRole::Reserve if is_stale => AfterExit::StartReserve,
            SlotRole::Reserve => {
                if let Some(reason) = self.replacing.filter(|_| ending.has_no_memory) {
                    return AfterExit::DrainFirst(reason);
                }
                // The reason for the replacement persists, so without a pause a new R process would
                // be started every second.
                let (pauses, until) = &mut self.replacement_backoff;
                let pause = pauses.on_exit(Duration::ZERO, false, ending.at, worker.start.epoch);
                *until = Some(ending.at + pause.time);
                match self.replacing.take() {
                    Some(ReplaceReason::Reload) if is_of_earlier_reload => {
                        AfterExit::ReloadContinues
                    }
                    Some(ReplaceReason::Reload) => AfterExit::ReloadFailed,
                    _ => AfterExit::ReserveFailed,
                }
            }
            SlotRole::Current { is_replaced: true } => AfterExit::Replaced,
            SlotRole::Current { is_replaced: false } => {
                let reason = self.replacing.map(ReplaceReason::exit_reason);
                if is_stale || (reason.is_some() && reason == worker.exit_reason) {
                    self.start_at = Some(ending.at);
                    return AfterExit::StartNext;
                }
                // A later reload continues, because it may load a repaired app.
                let fails_reload =
                    self.replacing.take() == Some(ReplaceReason::Reload) && !is_of_earlier_reload;
                AfterExit::Failed { fails_reload }
            }
        }
    }

    /// Schedules another start in place of a failed worker, and returns the pause before it.
    /// `was_ready` is true if any worker of the app has ever been ready.
    pub(super) fn on_failure(
        &mut self,
        worker: &Worker<P>,
        ending: Ending,
        was_ready: bool,
    ) -> Pause {
        let (epoch, now) = (worker.start.epoch, ending.at);
        let is_failed_start = worker.is_starting() || !was_ready;
        self.is_misconfigured = is_failed_start && ending.exit == Exit::Status(CONFIG_ERROR_STATUS);
        if is_failed_start {
            return self.on_failed_start(epoch, now);
        }
        let life = now.duration_since(worker.started_at);
        let pause = self.backoff.on_exit(life, worker.process.responses() > 0, now, epoch);
        self.start_at = Some(now + pause.time);
        pause
    }

    /// Counts a start that has failed, schedules the next one, and returns the pause before it.
    pub(super) fn on_failed_start(&mut self, epoch: u64, now: Instant) -> Pause {
        self.failed_starts += 1;
        let pause = self.backoff.on_failed_start(now, epoch);
        self.start_at = Some(now + pause.time);
        pause
    }

    /// Returns true if the workers of the slot end repeatedly without having answered a request.
    pub(super) fn is_in_crash_loop(&self, now: Instant) -> bool {
        let current = self.current.as_ref();
        let life = current.map_or(Duration::ZERO, |worker| now.duration_since(worker.started_at));
        self.backoff.is_loop(life) && current.is_none_or(|worker| worker.process.responses() == 0)
    }

    /// Returns true if the current worker is ready and was started in this generation.
    pub(super) fn is_ready_in(&self, generation: u64) -> bool {
        self.current.as_ref().is_some_and(|worker| {
            worker.start.generation == generation && worker.phase == WorkerPhase::Ready
        })
    }
}
