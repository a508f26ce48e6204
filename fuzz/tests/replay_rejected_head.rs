//! Runs the fuzz target of rejected heads with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::http::rejected_head::rejected_head;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/rejected_head");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        rejected_head(&seed);
        for at in 0..seed.len() {
            rejected_head(&seed[..at]);
            rejected_head(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b' ', b'\n', b'"', b'?', 0xFF] {
                rejected_head(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 6, "{seeds} seeds");
}
