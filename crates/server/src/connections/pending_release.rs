//! The count of bytes that evicted connections still hold, and will release soon.

use std::cell::Cell;

use rookery_exchange::Share;

/// The bytes that evicted connections still hold and will release soon, for each share of the
/// memory budget. The budget still counts these bytes as used.
#[derive(Debug, Default)]
pub(super) struct PendingRelease([Cell<usize>; Share::COUNT]);

impl PendingRelease {
    pub(super) fn bytes(&self, share: Share) -> usize {
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
