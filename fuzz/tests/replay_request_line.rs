//! Runs the fuzz target of request lines with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::http::request_line::request_line;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/request_line");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        request_line(&seed);
        for at in 0..seed.len() {
            request_line(&seed[..at]);
            request_line(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b' ', b'\n', b'"', b'?', 0xFF] {
                request_line(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 6, "{seeds} seeds");
}
