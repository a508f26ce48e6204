//! When what idle peers have freed is given back to the system.

use std::cell::Cell;

/// As many as are worth a look at all of the heap: some 12 MiB.
const LEAST: usize = 1024;

/// While more than that come within a tick, what they free is soon used again.
const MANY: usize = 16;

/// How many peers have given their buffers up.
#[derive(Debug, Default)]
pub(super) struct Parked {
    /// Since memory was last given back.
    all: Cell<usize>,
    /// Within this tick.
    new: Cell<usize>,
}

impl Parked {
    pub(super) fn one(&self) {
        self.new.set(self.new.get() + 1);
    }

    /// A tick has passed: whether memory is to be given back now.
    pub(super) fn tick(&self) -> bool {
        let new = self.new.take();
        let all = self.all.get() + new;
        let is_due = all >= LEAST && new <= MANY;
        self.all.set(if is_due { 0 } else { all });
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(parks: &[usize]) -> Vec<bool> {
        let parked = Parked::default();
        let tick = |count: &usize| {
            (0..*count).for_each(|_| parked.one());
            parked.tick()
        };
        parks.iter().map(tick).collect()
    }

    #[test]
    fn once_behind_a_wave_and_not_within_it() {
        assert_eq!(ticks(&[1000, 500, 17, 16, 0, 16]), [false, false, false, true, false, false]);
        assert_eq!(ticks(&[LEAST - 1, 0, 1, 0]), [false, false, true, false]);
        assert_eq!(ticks(&[100; 50]), [false; 50]);
    }
}
