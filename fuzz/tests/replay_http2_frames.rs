//! Runs the seeds of the frames of HTTP/2, and pieces of them, on stable.

use std::fs;
use std::path::Path;

use rookery_fuzz::http2_frames::http2_frames;

/// Every seed, every beginning of one, and every seed with one of its bytes left out or another.
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
