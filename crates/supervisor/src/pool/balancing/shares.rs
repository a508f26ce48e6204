//! The division of the places at a worker among the networks, or the peers, that take them.

use rookery_exchange::ById;

/// The numbers of places at a worker that the networks, or the peers, have taken. Each of these is
/// a *holder*.
///
/// A holder could keep the others out by taking all places for a long time. While all places are
/// taken, a holder that has less than an equal part of them therefore gets another one beyond them,
/// and at most as many as are left of a second, larger number of places. As long as no holder has
/// more than its part, the places are not exceeded.
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

    /// Returns true if this holder, or one that has no place, may have a place although all `max`
    /// places are taken. `used` of at most `most` are taken.
    pub(super) fn has_place_beyond(
        &self,
        holder: Option<u64>,
        used: usize,
        (max, most): (usize, usize),
    ) -> bool {
        used + self.held_by(holder) < most && self.is_below_part(holder, max)
    }

    /// Returns true if this holder, or one that has no place, has no more than an equal part of
    /// `max` places even with another one. The holders that have a place, and this one, have equal
    /// parts.
    pub(super) fn is_below_part(&self, holder: Option<u64>, max: usize) -> bool {
        let held = self.held_by(holder);
        let holders = self.held.len() + usize::from(held == 0);
        (held + 1).saturating_mul(holders) <= max
    }

    fn held_by(&self, holder: Option<u64>) -> usize {
        holder.and_then(|holder| self.held.get(&holder)).copied().unwrap_or(0)
    }
}
