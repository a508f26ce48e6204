//! Runs the fuzz target of HTTP/2 frames with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::http::http2_frames::http2_frames;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/http2_frames");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        http2_frames(&seed);
        for at in 0..seed.len() {
            http2_frames(&seed[..at]);
            http2_frames(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, 1, 4, 9, 0xFF] {
                http2_frames(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 5, "{seeds} seeds");
}
