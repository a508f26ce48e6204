//! Who has been told to go, and has not gone yet.

use std::cell::Cell;

use rookery_exchange::Share;

/// Bytes of holders that have been told to go and have not gone yet: they are still charged.
#[derive(Debug, Default)]
pub(super) struct Leaving([Cell<usize>; Share::COUNT]);

impl Leaving {
    pub(super) fn of(&self, share: Share) -> usize {
        self.0[share as usize].get()
    }

    pub(super) fn add(&self, share: Share, bytes: usize) {
        let cell = &self.0[share as usize];
        cell.set(cell.get() + bytes);
    }

    pub(super) fn remove(&self, share: Share, bytes: usize) {
        let cell = &self.0[share as usize];
        cell.set(cell.get() - bytes);
    }
}
