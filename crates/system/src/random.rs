//! Numbers that other processes cannot guess.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

/// Returns a number that another process cannot guess. The 64 bits of the number suffice for an
/// unpredictable name, but not for a cryptographic key.
pub fn unpredictable() -> u64 {
    // The standard library takes the keys of its hash function from the system, and changes them
    // for each value.
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_differ_from_each_other() {
        let numbers: HashSet<u64> = (0..1000).map(|_| unpredictable()).collect();
        assert_eq!(numbers.len(), 1000);
    }
}
