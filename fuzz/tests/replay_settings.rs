//! Runs the seeds of the settings' target, and pieces of them, on stable.

use std::fs;
use std::path::Path;

use rookery_fuzz::settings::settings_file;

/// Every seed, every beginning of one, and every seed with one of its bytes left out or another.
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
