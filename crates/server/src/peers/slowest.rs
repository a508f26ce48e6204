//! The slowest peers that were found by a look over all.

use std::cell::RefCell;
use std::cmp::Reverse;

/// The slowest peers at the last look, the slowest of all last.
#[derive(Debug, Default)]
pub(super) struct Slowest(pub(super) RefCell<Vec<Slow>>);

/// A peer that makes no use of its seat. In the order of its fields: the longer it has not, then the older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slow {
    pub(super) ticks: u32,
    pub(super) age: Reverse<u64>,
    pub(super) key: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_is_last_and_of_equals_the_oldest() {
        let slow = |ticks, serial| Slow { ticks, age: Reverse(serial), key: 0 };
        let mut all = [slow(5, 9), slow(7, 3), slow(7, 2), slow(0, 1)];
        all.sort_unstable();
        assert_eq!(all.map(|slow| slow.age.0), [1, 9, 3, 2]);
    }
}
