//! Workers that are to be replaced, one at a time: a new one is started, and when it is ready the old one is drained; or the other way
//! round, where there is no memory for one more.

use std::collections::VecDeque;

use super::recycle::ReplaceReason;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReplacementQueue {
    waiting: VecDeque<(u32, ReplaceReason)>,
    /// The slot whose new worker is awaited.
    current: Option<(u32, ReplaceReason)>,
}

impl ReplacementQueue {
    /// All are to be replaced, those that were waiting as well.
    pub(super) fn reload(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.waiting = slots.into_iter().map(|slot| (slot, ReplaceReason::Reload)).collect();
    }

    /// A slot is given up: nothing of it is replaced.
    pub(super) fn forget(&mut self, slot: u32) {
        self.waiting.retain(|(other, _)| *other != slot);
        self.current.take_if(|(current, _)| *current == slot);
    }

    /// One is, unless it is anyway.
    pub(super) fn add(&mut self, slot: u32, reason: ReplaceReason) {
        if !self.has(slot) {
            self.waiting.push_back((slot, reason));
        }
    }

    pub(super) fn has(&self, slot: u32) -> bool {
        self.waiting.iter().chain(&self.current).any(|(other, _)| *other == slot)
    }

    /// Which is the next, if none is under way.
    pub(super) fn first(&self) -> Option<(u32, ReplaceReason)> {
        if self.current.is_some() { None } else { self.waiting.front().copied() }
    }

    /// Begins with the next, if none is under way.
    pub(super) fn next(&mut self) -> Option<(u32, ReplaceReason)> {
        if self.current.is_none() {
            self.current = self.waiting.pop_front();
            return self.current;
        }
        None
    }

    /// Why that of a slot is under way, if it is.
    pub(super) fn current_of(&self, slot: u32) -> Option<ReplaceReason> {
        self.current.filter(|(current, _)| *current == slot).map(|(_, reason)| reason)
    }

    /// That of a slot is over; says why it was replaced.
    pub(super) fn finish(&mut self, slot: u32) -> Option<ReplaceReason> {
        self.current.take_if(|(current, _)| *current == slot).map(|(_, reason)| reason)
    }

    /// What is wrong with one is wrong with all that are reloaded.
    pub(super) fn give_up_reload(&mut self) {
        self.waiting.retain(|(_, reason)| *reason != ReplaceReason::Reload);
    }

    /// Returns true if none is to be replaced.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Whether a reload is under way.
    pub(super) fn is_reloading(&self) -> bool {
        self.waiting.iter().chain(&self.current).any(|(_, reason)| *reason == ReplaceReason::Reload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_each_once() {
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
        // A second reload is behind the one that is under way.
        replacements.reload(0..2);
        assert!(replacements.has(0) && replacements.has(1));
        assert_eq!(replacements.finish(0), Some(ReplaceReason::Reload));
        assert_eq!(replacements.next(), Some((0, ReplaceReason::Reload)));
        replacements.add(5, ReplaceReason::Requests(1));
        replacements.give_up_reload();
        assert_eq!(replacements.finish(0), Some(ReplaceReason::Reload));
        assert!(!replacements.is_reloading());
        assert_eq!(replacements.next(), Some((5, ReplaceReason::Requests(1))));
        // One that is given up holds up no other.
        replacements.add(6, ReplaceReason::Requests(1));
        replacements.add(7, ReplaceReason::Requests(1));
        replacements.forget(5);
        replacements.forget(6);
        assert!(!replacements.has(5) && !replacements.has(6));
        assert_eq!(replacements.next(), Some((7, ReplaceReason::Requests(1))));
    }
}
