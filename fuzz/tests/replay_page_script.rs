//! Runs the fuzz target of the insertion of a script into pages with its corpus and variants of
//! it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::page_script::page_script;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/page_script");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        page_script(&seed);
        for at in 0..seed.len() {
            page_script(&seed[..at]);
            page_script(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b' ', b'\n', 0xFF] {
                page_script(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 5, "{seeds} seeds");
}
