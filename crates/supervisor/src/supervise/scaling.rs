//! The numbers of workers and spares (started workers held in reserve) that there should be, and
//! the choice of the worker that is removed if there are too many.

use std::cmp::Reverse;

use super::MOST_WORKERS;

/// The number of workers that should serve, and the number of spares, which are started workers
/// held in reserve.
#[derive(Debug)]
pub(super) struct Scaling {
    /// The number of serving workers in the configuration.
    configured: u32,
    /// The number of workers that should serve. Differs from the configuration if commands have
    /// changed it.
    wanted: u32,
    /// The number of spares, which are started workers held in reserve.
    spares: u32,
    /// The numbers of workers and spares in the configuration of a reload that has not succeeded
    /// yet.
    requested: Option<(u32, u32)>,
}

/// A change of the number of workers or spares by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalingStep {
    /// One more worker should serve.
    AddWorker,
    /// One worker fewer should serve.
    RemoveWorker,
    /// One more spare (a started worker held in reserve) is needed.
    AddSpare,
    /// One spare (a started worker held in reserve) fewer is needed.
    RemoveSpare,
}

/// The state of a worker, as far as it matters for the choice of the worker to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotWorker {
    /// The worker has ended and has not been started again.
    Missing,
    /// The worker is starting or ending. The epoch is the number of its start.
    NotReady { epoch: u64 },
    /// The worker is ready, but is held in reserve as a spare. The epoch is the number of its
    /// start.
    Spare { epoch: u64 },
    /// The worker is ready and serves. `is_available` is false if it does not respond, `sessions`
    /// is the number of its WebSockets, and the epoch is the number of its start.
    Serving { is_available: bool, sessions: usize, epoch: u64 },
}

impl Scaling {
    /// Creates the record with the numbers of workers and spares in the configuration.
    pub(super) fn new(workers: u32, spares: u32) -> Scaling {
        Scaling { configured: workers, wanted: workers, spares, requested: None }
    }

    /// Returns the number of workers that should serve.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Returns the number of spares, which are started workers held in reserve.
    pub(super) fn spares(&self) -> u32 {
        self.spares
    }

    /// Returns true if fewer workers serve than should. `serving` is the number of ready workers
    /// that serve.
    pub(super) fn is_short_of_workers(&self, serving: usize) -> bool {
        serving < self.wanted as usize
    }

    /// Records the numbers of workers and spares that a reload requests. They take effect only when
    /// the reload has succeeded. If the reloaded app does not start, the numbers stay as they are.
    pub(super) fn request(&mut self, workers: u32, spares: u32) {
        let numbers = (workers, spares);
        self.requested = (numbers != (self.configured, self.spares)).then_some(numbers);
    }

    /// Returns true if a reload has requested other numbers of workers and spares, which have not
    /// been applied yet.
    pub(super) fn has_request(&self) -> bool {
        self.requested.is_some()
    }

    /// Drops the numbers of workers and spares that a failed reload has requested.
    pub(super) fn cancel_request(&mut self) {
        self.requested = None;
    }

    /// Returns the numbers of serving workers and of spares that apply once a reload in progress
    /// has succeeded.
    pub(super) fn after_reload(&self) -> (u32, u32) {
        match self.requested {
            Some((workers, spares)) if workers != self.configured => (workers, spares),
            Some((_, spares)) => (self.wanted, spares),
            None => (self.wanted, self.spares),
        }
    }

    /// Applies the numbers of workers and spares that a successful reload has requested. Returns
    /// the resulting changes, in order. A number of workers that was set by commands stays in
    /// force, unless the reload has changed the configured number.
    pub(super) fn apply_request(&mut self) -> Vec<ScalingStep> {
        let Some((workers, spares)) = self.requested.take() else { return Vec::new() };
        let mut steps = Vec::new();
        let mut change = |from: u32, to: u32, add, remove| {
            steps.extend((from..to).map(|_| add));
            steps.extend((to..from).map(|_| remove));
        };
        if workers != std::mem::replace(&mut self.configured, workers) {
            change(self.wanted, workers, ScalingStep::AddWorker, ScalingStep::RemoveWorker);
        }
        let before = std::mem::replace(&mut self.spares, spares);
        change(before, spares, ScalingStep::AddSpare, ScalingStep::RemoveSpare);
        steps
    }

    /// Increases the number of workers by one. Returns false if it is [`MOST_WORKERS`] already.
    pub(super) fn add_worker(&mut self) -> bool {
        let may_add = self.wanted < MOST_WORKERS;
        self.wanted += u32::from(may_add);
        may_add
    }

    /// Reduces the number of workers by one. Returns false if only one is left.
    pub(super) fn remove_worker(&mut self) -> bool {
        let may_remove = self.wanted > 1;
        self.wanted -= u32::from(may_remove);
        may_remove
    }

    /// Returns the slot (the numbered place) of the worker to remove.
    ///
    /// - If more workers serve than should, this is a serving worker: preferably one that does not
    ///   respond, then the one with the fewest WebSockets, then the youngest.
    /// - Otherwise it is a worker that does not serve.
    pub(super) fn slot_to_remove(&self, slots: &[(u32, SlotWorker)]) -> Option<u32> {
        // A worker that does not respond serves no requests, so it is removed first.
        let serving = slots.iter().filter_map(|(slot, worker)| match *worker {
            SlotWorker::Serving { is_available, sessions, epoch } => {
                Some((is_available, sessions, Reverse(epoch), *slot))
            }
            _ => None,
        });
        if serving.clone().count() > self.wanted as usize {
            return serving.min().map(|(_, _, _, slot)| slot);
        }
        // The preferred slot has no process. The next choices are a starting worker and a spare.
        let others = slots.iter().filter_map(|(slot, worker)| match *worker {
            SlotWorker::Missing => Some((0, Reverse(0), *slot)),
            SlotWorker::NotReady { epoch } => Some((1, Reverse(epoch), *slot)),
            SlotWorker::Spare { epoch } => Some((2, Reverse(epoch), *slot)),
            SlotWorker::Serving { .. } => None,
        });
        others.min().map(|(_, _, slot)| slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(sessions: usize, epoch: u64) -> SlotWorker {
        SlotWorker::Serving { is_available: true, sessions, epoch }
    }

    #[test]
    fn the_number_of_workers_stays_between_one_and_the_maximum() {
        let mut scaling = Scaling::new(1, 0);
        assert!(!scaling.remove_worker());
        assert!(scaling.add_worker() && scaling.wanted() == 2);
        assert!(scaling.remove_worker() && scaling.wanted() == 1);
        let mut scaling = Scaling::new(MOST_WORKERS, 0);
        assert!(!scaling.add_worker());
        assert_eq!(scaling.wanted(), MOST_WORKERS);
        assert!(scaling.is_short_of_workers(999) && !scaling.is_short_of_workers(1000));
    }

    #[test]
    fn requested_numbers_apply_after_the_reload() {
        let mut scaling = Scaling::new(2, 1);
        scaling.request(4, 0);
        assert_eq!((scaling.wanted(), scaling.spares()), (2, 1));
        assert_eq!(scaling.after_reload(), (4, 0));
        assert_eq!(
            scaling.apply_request(),
            [ScalingStep::AddWorker, ScalingStep::AddWorker, ScalingStep::RemoveSpare]
        );
        assert_eq!(scaling.apply_request(), []);
        scaling.request(4, 3);
        scaling.cancel_request();
        assert_eq!(scaling.apply_request(), []);
    }

    #[test]
    fn a_number_of_workers_set_by_commands_outlives_a_reload_with_the_same_configuration() {
        let mut scaling = Scaling::new(2, 0);
        scaling.add_worker();
        scaling.request(2, 1);
        assert_eq!(scaling.after_reload(), (3, 1));
        assert_eq!(scaling.apply_request(), [ScalingStep::AddSpare]);
        scaling.request(1, 1);
        assert_eq!(scaling.apply_request(), [ScalingStep::RemoveWorker; 2]);
    }

    #[test]
    fn removes_the_unavailable_or_youngest_worker_with_the_fewest_sessions() {
        let scaling = Scaling::new(2, 0);
        let slots = [(0, serving(1, 1)), (1, serving(0, 2)), (2, serving(0, 3))];
        assert_eq!(scaling.slot_to_remove(&slots), Some(2));
        let silent = SlotWorker::Serving { is_available: false, sessions: 9, epoch: 1 };
        let slots = [(0, silent), (1, serving(0, 2)), (2, serving(0, 3))];
        assert_eq!(scaling.slot_to_remove(&slots), Some(0));
    }

    #[test]
    fn removes_a_worker_that_does_not_serve_unless_too_many_serve() {
        let scaling = Scaling::new(2, 0);
        let mut slots = vec![(0, serving(0, 1)), (1, serving(0, 2))];
        assert_eq!(scaling.slot_to_remove(&slots), None);
        slots.push((2, SlotWorker::Spare { epoch: 3 }));
        assert_eq!(scaling.slot_to_remove(&slots), Some(2));
        slots.extend([
            (3, SlotWorker::NotReady { epoch: 4 }),
            (4, SlotWorker::NotReady { epoch: 5 }),
        ]);
        assert_eq!(scaling.slot_to_remove(&slots), Some(4));
        slots.push((5, SlotWorker::Missing));
        assert_eq!(scaling.slot_to_remove(&slots), Some(5));
    }
}
