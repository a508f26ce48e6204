//! Runs the fuzz target of the settings file with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::settings::settings_file;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/settings_file");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        settings_file(&seed);
        for at in 0..seed.len() {
            settings_file(&seed[..at]);
            settings_file(&[&seed[..at], &seed[at + 1..]].concat());
            for other in *b" \n\t:{}[]*&!-'\"|>#0\xFF" {
                settings_file(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 6, "{seeds} seeds");
}
