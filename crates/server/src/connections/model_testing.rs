//! Small random numbers for model tests: from a seed, so that a failure can be seen again.

/// A generator of numbers (xorshift).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Makes one that gives the same numbers for the same seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a number below `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % below
    }
}

/// Runs `holds` on sequences of up to `longest` operations below `kinds`, and fails with the shortest prefix of one that does not
/// hold.
pub(crate) fn for_all_sequences(
    kinds: usize,
    longest: usize,
    holds: impl Fn(&[usize]) -> Result<(), String>,
) {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let len = 1 + random.below(longest);
        let mut operations: Vec<usize> = (0..len).map(|_| random.below(kinds)).collect();
        let Err(mut why) = holds(&operations) else { continue };
        // Without each operation in turn, for as long as it still fails.
        let mut at = 0;
        while at < operations.len() {
            let mut fewer = operations.clone();
            fewer.remove(at);
            match holds(&fewer) {
                Err(reason) => (operations, why) = (fewer, reason),
                Ok(()) => at += 1,
            }
        }
        panic!("{operations:?}: {why}");
    }
}
