//! Pseudo-random numbers, for tests that compare code with a simple model of it.

/// A generator of pseudo-random numbers (xorshift). Its seed is fixed, so that failures can be
/// reproduced.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator of pseudo-random numbers. Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns a pseudo-random number from 0 to `below` - 1.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % below
    }
}
