//! Random sequences of operations, for tests that compare code with a simple model of it. The seeds
//! are fixed, so that failures can be reproduced.

use rookery_test_support::Random;

/// Calls `holds`, which checks a property, with 2,000 random sequences of up to `longest`
/// operations. Each operation is a number below `kinds`. If `holds` returns an error, removes
/// operations from the sequence as long as `holds` still fails, and then panics with the shortened
/// sequence.
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
        // Removes each operation in turn, as long as the sequence still fails without it.
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
