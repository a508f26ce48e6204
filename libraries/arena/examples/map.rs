//! Counts words with a map whose table and keys are in an arena. Reads the standard input, and
//! reuses the memory for each line.

use std::io::{self, BufRead, Write};

use hashbrown::{DefaultHashBuilder, HashMap};
use rookery_arena::Arena;
use rookery_arena::collections::{CollectIn, Vec};

fn main() -> io::Result<()> {
    let mut arena = Arena::new();
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?.to_lowercase();
        let mut counts = HashMap::with_hasher_in(DefaultHashBuilder::default(), &arena);
        for word in line.split_whitespace() {
            // A key has to live as long as the map, and the arena does.
            *counts.entry(&*arena.alloc_str(word)).or_insert(0) += 1;
        }
        let mut counts: Vec<(&str, u32)> = counts.into_iter().collect_in(&arena);
        counts.sort_unstable_by_key(|(word, count)| (u32::MAX - count, *word));
        counts.truncate(3);
        writeln!(output, "{counts:?}")?;
        drop(counts);
        arena.reset();
    }
    Ok(())
}
