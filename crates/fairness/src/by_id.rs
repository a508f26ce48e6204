//! Maps whose keys are numbers that identify something.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are ids, such as those of exchanges and peers. Its hash function is fast and
/// not protected against chosen keys. That is safe, because clients cannot choose the ids.
pub type ById<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

/// The hasher of [`ById`]. It multiplies an id by an odd constant, so that both the lowest and the
/// highest bits of the hash are well distributed, as the map requires.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are numbers")
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
