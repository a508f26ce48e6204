//! The pool: the slots of an app's workers, and the decisions that concern all of them.

use std::cmp::Reverse;
use std::time::Instant;

use super::Timeouts;
use super::replace_reason::ReplaceReason;
use super::scaling::Scaling;
use super::slot::{AfterExit, Ending, Slot, SlotRole};
use super::worker::{Handle, Process, Worker};

/// The maximum number of replacements that are in progress at the same time. One more R process
/// than usual needs memory, and an app that cannot be started must not take further workers out of
/// service.
const MAX_REPLACEMENTS: usize = 1;

/// The slots of an app's workers, and the numbers that they should have.
#[derive(Debug)]
pub(super) struct Pool<P = Process> {
    /// The slots in the order of their numbers.
    slots: Vec<Slot<P>>,
    pub(super) scaling: Scaling,
    /// The number of reloads that have begun, which is the generation of workers that are started
    /// now.
    generation: u64,
    /// Whether workers of older generations are to be replaced: a reload has begun, has not failed,
    /// and has not been logged as complete.
    is_reloading: bool,
}

impl<P: Handle> Pool<P> {
    /// Creates the slots, in which workers are to be started at the time `now`.
    pub(super) fn new(workers: u32, spares: u32, now: Instant) -> Pool<P> {
        let scaling = Scaling::new(workers, spares);
        let slots = (0..workers + spares).map(|number| Slot::new(number, now)).collect();
        Pool { slots, scaling, generation: 0, is_reloading: false }
    }

    // ---- slots and workers ----

    /// Returns the slots in the order of their numbers.
    pub(super) fn slots(&self) -> &[Slot<P>] {
        &self.slots
    }

    /// Returns the slots in the order of their numbers, as a mutable slice.
    pub(super) fn slots_mut(&mut self) -> &mut [Slot<P>] {
        &mut self.slots
    }

    /// Returns the slot with this number.
    pub(super) fn slot_mut(&mut self, number: u32) -> Option<&mut Slot<P>> {
        self.slots.iter_mut().find(|slot| slot.number == number)
    }

    /// Returns the slots that should have a worker.
    fn kept(&self) -> impl Iterator<Item = &Slot<P>> {
        self.slots.iter().filter(|slot| !slot.is_removed)
    }

    /// Returns all workers of all slots.
    pub(super) fn workers(&self) -> impl Iterator<Item = &Worker<P>> {
        self.slots.iter().flat_map(Slot::workers)
    }

    /// Returns mutable references to all workers of all slots.
    pub(super) fn workers_mut(&mut self) -> impl Iterator<Item = &mut Worker<P>> {
        self.slots.iter_mut().flat_map(Slot::workers_mut)
    }

    /// Returns the worker with this epoch, which is the number of its start.
    pub(super) fn worker_mut(&mut self, epoch: u64) -> Option<&mut Worker<P>> {
        self.workers_mut().find(|worker| worker.start.epoch == epoch)
    }

    /// Removes the worker with this epoch, which has ended, and returns it with its role. Also
    /// removes its slot if that was the last worker of a removed one.
    pub(super) fn take(&mut self, epoch: u64) -> Option<(Worker<P>, SlotRole)> {
        let taken = self.slots.iter_mut().find_map(|slot| slot.take(epoch));
        self.cull();
        taken
    }

    /// Returns what follows from the end of a worker that had this role in its slot.
    pub(super) fn after_exit(
        &mut self,
        worker: &Worker<P>,
        role: SlotRole,
        ending: Ending,
    ) -> AfterExit {
        let generation = self.generation;
        self.slot_mut(worker.start.slot)
            .map_or(AfterExit::Nothing, |slot| slot.after_exit(worker, role, ending, generation))
    }

    /// Forgets the removed slots whose workers have all ended.
    fn cull(&mut self) {
        self.slots.retain(|slot| !slot.is_removed || slot.workers().next().is_some());
    }

    /// Returns true if no worker is about to change its phase, and no start is scheduled.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        self.slots.iter().all(|slot| slot.start_at.is_none())
            && self.workers().all(|worker| worker.is_settled(now))
    }

    // ---- starts ----

    /// Takes the slots in which a worker is to be started now. Until a worker `was_ready`, only the
    /// first one is started, and after that as many at a time as there are `processors`. Otherwise
    /// an app whose start needs much processor time would exceed the start timeout in all workers.
    pub(super) fn take_due_starts(
        &mut self,
        now: Instant,
        was_ready: bool,
        processors: usize,
    ) -> Vec<u32> {
        let starting = self.workers().filter(|worker| worker.is_starting()).count();
        let slots = self.slots.iter_mut().filter(|slot| !slot.is_removed);
        let slots = slots.take(if was_ready { usize::MAX } else { 1 });
        slots
            .filter_map(|slot| slot.start_at.take_if(|at| now >= *at).map(|_| slot.number))
            .take(processors.saturating_sub(starting))
            .collect()
    }

    /// Returns true if no start of a worker is left to try: either more than `retries` starts of
    /// the only slot in which a worker is started have failed, or a start has failed with an error
    /// of the configuration. Applies only while no worker has ever been ready.
    pub(super) fn has_no_start_left(&self, retries: u32) -> bool {
        self.kept().next().is_none_or(|slot| slot.failed_starts > retries)
            || self.slots.iter().any(|slot| slot.is_misconfigured)
    }

    /// Returns how often the start of a worker has failed in the same slot.
    pub(super) fn failed_starts(&self) -> u32 {
        self.slots.iter().map(|slot| slot.failed_starts).max().unwrap_or_default()
    }

    /// Returns true if all workers end repeatedly without having answered a request.
    pub(super) fn is_in_crash_loop(&self, now: Instant) -> bool {
        self.kept().filter(|slot| slot.starts > 0).all(|slot| slot.is_in_crash_loop(now))
    }

    // ---- service ----

    /// Returns the number of workers that serve.
    fn serving(&self) -> usize {
        self.slots.iter().filter(|slot| slot.serves()).count()
    }

    /// Returns true if fewer workers serve than should.
    pub(super) fn is_short(&self) -> bool {
        self.serving() < self.scaling.wanted() as usize
    }

    /// Handles a worker that has become ready: it enters service if it replaces a worker that
    /// serves, or if too few serve.
    pub(super) fn on_ready(&mut self, epoch: u64, times: Timeouts, now: Instant) {
        let is_short = self.is_short();
        self.slots.iter_mut().for_each(|slot| slot.on_ready(epoch, is_short, times, now));
    }

    /// Puts spares into service while too few workers serve, beginning with those that were started
    /// after the latest reload. Returns their epochs.
    pub(super) fn use_spares(&mut self) -> Vec<u64> {
        let mut used = Vec::new();
        while self.is_short() {
            let spares = self.slots.iter_mut().filter_map(|slot| slot.current.as_mut());
            let spares = spares.filter(|it| it.is_spare() && it.process.is_available());
            let spare = spares.max_by_key(|it| (it.start.generation, Reverse(it.start.slot)));
            let Some(spare) = spare else { break };
            spare.enter_service();
            used.push(spare.start.epoch);
        }
        used
    }

    // ---- reloads and replacements ----

    /// Returns the generation of workers that are started now, which is the number of reloads that
    /// have begun.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the generation of a reload that is in progress.
    pub(super) fn reload(&self) -> Option<u64> {
        self.is_reloading.then_some(self.generation)
    }

    /// Begins a reload: the workers of older generations are to be replaced.
    pub(super) fn begin_reload(&mut self) {
        self.generation += 1;
        self.is_reloading = true;
        self.slots.iter_mut().for_each(|slot| slot.exceeded = None);
    }

    /// Cancels the rest of a reload that has failed. If one new worker cannot start, the next ones
    /// would fail with the same error.
    pub(super) fn cancel_reload(&mut self) {
        self.is_reloading = false;
        self.scaling.cancel_request();
    }

    /// Returns true if a replacement for a reload is pending or in progress.
    pub(super) fn is_replacing_for_reload(&self) -> bool {
        let reload = self.reload();
        self.slots
            .iter()
            .any(|slot| [slot.due(reload), slot.replacing].contains(&Some(ReplaceReason::Reload)))
    }

    /// Returns true if all workers are ready and belong to the current generation.
    pub(super) fn is_reloaded(&self) -> bool {
        !self.is_replacing_for_reload() && self.kept().all(|slot| slot.is_ready_in(self.generation))
    }

    /// Returns the generation of a reload that is complete, but only once.
    pub(super) fn take_completed_reload(&mut self) -> Option<u64> {
        let is_complete = self.is_reloading && self.is_reloaded();
        self.is_reloading &= !is_complete;
        is_complete.then_some(self.generation)
    }

    /// Returns the slot whose replacement begins next, with the reason. Returns `None` if none is
    /// due, enough are in progress, or the next one has to wait. `surges` is true if a new worker
    /// may run beside the old one.
    ///
    /// A reload comes first. Without overlap, it replaces workers that serve last, so that they
    /// stay if the app is broken. Otherwise the oldest worker comes first.
    pub(super) fn next_replacement(&self, surges: bool) -> Option<(u32, ReplaceReason)> {
        if self.kept().filter(|slot| slot.replacing.is_some()).count() >= MAX_REPLACEMENTS {
            return None;
        }
        let reload = self.reload();
        let due = self.kept().filter_map(|slot| Some((slot, slot.due(reload)?)));
        let due = due.filter(|(slot, reason)| !slot.waits_for_former(*reason));
        let (slot, reason) = due.min_by_key(|(slot, reason)| {
            let epoch = slot.current.as_ref().map(|current| current.start.epoch);
            (*reason != ReplaceReason::Reload, !surges && slot.serves(), epoch)
        })?;
        // Without overlap, the replacement would take one more worker out of service while too few
        // serve, and the new worker might fail as the others do. A reload does not wait, since it
        // may repair the others.
        let is_reload = reason == ReplaceReason::Reload;
        let has_to_wait = !surges && !is_reload && slot.serves() && self.is_short();
        (!has_to_wait).then_some((slot.number, reason))
    }

    // ---- the numbers of workers ----

    /// Removes and adds slots until no more workers serve than should, and there is one slot for
    /// each worker and spare that there should be.
    pub(super) fn resize(&mut self, times: Timeouts, now: Instant) {
        let wanted = (self.scaling.wanted() + self.scaling.spares()) as usize;
        while self.kept().count() > wanted || self.serving() > self.scaling.wanted() as usize {
            let Some(number) = self.slot_to_remove() else { break };
            if let Some(slot) = self.slot_mut(number) {
                slot.remove(times, now);
            }
            self.cull();
        }
        while self.kept().count() < wanted {
            // The slots are in the order of their numbers, so the first gap is a free number.
            let gap = (0..).zip(&self.slots).position(|(number, slot)| slot.number != number);
            let at = gap.unwrap_or(self.slots.len());
            self.slots.insert(at, Slot::new(at as u32, now));
        }
    }

    /// Returns the number of the slot to remove.
    ///
    /// - If more workers serve than should, its worker serves: preferably it does not respond, then
    ///   it has the fewest WebSockets, then it is the youngest.
    /// - Otherwise no worker serves in it: preferably the slot has no worker, then one that is
    ///   starting or ending, then a spare.
    fn slot_to_remove(&self) -> Option<u32> {
        if self.serving() > self.scaling.wanted() as usize {
            let serving = self.kept().filter_map(|slot| {
                let worker = slot.current.as_ref().filter(|worker| worker.serves())?;
                let (process, epoch) = (&worker.process, Reverse(worker.start.epoch));
                Some((process.is_available(), process.load().1, epoch, slot.number))
            });
            return serving.min().map(|(_, _, _, number)| number);
        }
        let others = self.kept().filter(|slot| !slot.serves()).map(|slot| match &slot.current {
            None => (0, Reverse(0), slot.number),
            Some(worker) => {
                (1 + u8::from(worker.is_spare()), Reverse(worker.start.epoch), slot.number)
            }
        });
        others.min().map(|(_, _, number)| number)
    }
}

#[cfg(test)]
mod tests;
