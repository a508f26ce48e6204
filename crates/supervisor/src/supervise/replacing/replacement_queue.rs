//! The queue of workers that have to be replaced, one at a time. Normally the new worker is started
//! first, and the old worker is drained when the new one is ready. If there is not enough memory
//! for both, the old worker is drained first.

use std::collections::VecDeque;

use super::reason::ReplaceReason;

/// The queue of workers that have to be replaced, each with its slot (its numbered place) and the
/// reason.
#[derive(Debug, Default)]
pub(super) struct ReplacementQueue {
    /// The replacements that have not begun, in order, each with the worker's slot (its numbered
    /// place) and the reason.
    waiting: VecDeque<(u32, ReplaceReason)>,
    /// The slot of the worker whose replacement is in progress, and the reason.
    current: Option<(u32, ReplaceReason)>,
}

impl ReplacementQueue {
    /// Queues the replacement of the workers in these slots (the workers' numbered places) for a
    /// reload. Drops the replacements that were queued before.
    pub(super) fn reload(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.waiting = slots.into_iter().map(|slot| (slot, ReplaceReason::Reload)).collect();
    }

    /// Removes all replacements in this slot (a worker's numbered place), because no further worker
    /// is started in it.
    pub(super) fn remove_slot(&mut self, slot: u32) {
        self.waiting.retain(|(other, _)| *other != slot);
        self.current.take_if(|(current, _)| *current == slot);
    }

    /// Queues the replacement of the worker in this slot (its numbered place), unless one is queued
    /// or in progress.
    pub(super) fn add(&mut self, slot: u32, reason: ReplaceReason) {
        if !self.has(slot) {
            self.waiting.push_back((slot, reason));
        }
    }

    /// Returns true if the replacement of the worker in this slot (its numbered place) is queued or
    /// in progress.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.waiting.iter().chain(&self.current).any(|(other, _)| *other == slot)
    }

    /// Returns the next queued replacement of a worker, or `None` while one is in progress.
    pub(super) fn first(&self) -> Option<(u32, ReplaceReason)> {
        if self.current.is_some() { None } else { self.waiting.front().copied() }
    }

    /// Begins the next queued replacement of a worker and returns it, or returns `None` while one
    /// is in progress.
    pub(super) fn next(&mut self) -> Option<(u32, ReplaceReason)> {
        if self.current.is_none() {
            self.current = self.waiting.pop_front();
            return self.current;
        }
        None
    }

    /// Returns the reason why the worker in this slot (its numbered place) is being replaced, or
    /// `None` if its replacement is not in progress.
    pub(super) fn current_of(&self, slot: u32) -> Option<ReplaceReason> {
        self.current.filter(|(current, _)| *current == slot).map(|(_, reason)| reason)
    }

    /// Ends the replacement of the worker in this slot (its numbered place) if it is in progress,
    /// and returns its reason.
    pub(super) fn finish(&mut self, slot: u32) -> Option<ReplaceReason> {
        self.current.take_if(|(current, _)| *current == slot).map(|(_, reason)| reason)
    }

    /// Removes the remaining replacements of a failed reload from the queue. If one new worker
    /// cannot start, the next ones would fail with the same error.
    pub(super) fn cancel_reload(&mut self) {
        self.waiting.retain(|(_, reason)| *reason != ReplaceReason::Reload);
    }

    /// Returns true if the replacement of a worker for a reload is queued or in progress.
    pub(super) fn is_reloading(&self) -> bool {
        self.waiting.iter().chain(&self.current).any(|(_, reason)| *reason == ReplaceReason::Reload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_one_worker_at_a_time_and_each_once() {
        let mut replacements = ReplacementQueue::default();
        replacements.add(1, ReplaceReason::Requests(5));
        replacements.add(1, ReplaceReason::Memory(5));
        assert_eq!(replacements.next(), Some((1, ReplaceReason::Requests(5))));
        assert_eq!(replacements.next(), None);
        replacements.add(1, ReplaceReason::Memory(5));
        replacements.reload(0..2);
        assert_eq!(replacements.finish(0), None);
        assert_eq!(replacements.finish(1), Some(ReplaceReason::Requests(5)));
        assert!(replacements.is_reloading());
        assert_eq!(replacements.next(), Some((0, ReplaceReason::Reload)));
        // A second reload is queued behind the replacement in progress.
        replacements.reload(0..2);
        assert!(replacements.has(0) && replacements.has(1));
        assert_eq!(replacements.finish(0), Some(ReplaceReason::Reload));
        assert_eq!(replacements.next(), Some((0, ReplaceReason::Reload)));
        replacements.add(5, ReplaceReason::Requests(1));
        replacements.cancel_reload();
        assert_eq!(replacements.finish(0), Some(ReplaceReason::Reload));
        assert!(!replacements.is_reloading());
        assert_eq!(replacements.next(), Some((5, ReplaceReason::Requests(1))));
        // A slot without a worker does not delay other replacements.
        replacements.add(6, ReplaceReason::Requests(1));
        replacements.add(7, ReplaceReason::Requests(1));
        replacements.remove_slot(5);
        replacements.remove_slot(6);
        assert!(!replacements.has(5) && !replacements.has(6));
        assert_eq!(replacements.next(), Some((7, ReplaceReason::Requests(1))));
    }
}
