//! The division of the places at a worker among the networks, or the peers, that take them.

use rookery_exchange::ById;

/// The numbers of places at a worker that the networks, or the peers, have taken. Each of these is
/// a *holder*.
///
/// A holder could keep the others out by taking all places for a long time. While all places are
/// taken, a holder therefore gets a place beyond them if it has fewer than the holders have on
/// average, even with this place, and at most as many as are left of a second, larger number of
/// places.
#[derive(Debug, Default)]
pub(super) struct Shares {
    held: ById<usize>,
}

impl Shares {
    pub(super) fn add(&mut self, holder: u64) {
        *self.held.entry(holder).or_default() += 1;
    }

    /// Removes a place of a holder, if it has any.
    pub(super) fn remove(&mut self, holder: u64) {
        if let Some(count) = self.held.get_mut(&holder) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&holder);
            }
        }
    }

    /// Returns the number of places of each holder that has any.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, usize)> {
        self.held.iter().map(|(holder, count)| (*holder, *count))
    }

    /// Returns true if this holder, or one that has no place, may have a place beyond those that
    /// are taken. `used` of at most `most` places are taken.
    pub(super) fn has_place_beyond(&self, holder: Option<u64>, used: usize, most: usize) -> bool {
        let held = holder.and_then(|holder| self.held.get(&holder)).copied().unwrap_or(0);
        used + held < most && (held + 1) * self.held.len() < used
    }
}
