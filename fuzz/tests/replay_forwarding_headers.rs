//! Runs the fuzz target of the forwarding headers with its corpus and variants of it, on stable
//! Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::forwarding_headers::forwarding_headers;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/forwarding_headers");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        forwarding_headers(&seed);
        for at in 0..seed.len() {
            forwarding_headers(&seed[..at]);
            forwarding_headers(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [b'"', b',', b';', b'=', b'[', b':', 0xFF] {
                forwarding_headers(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 6, "{seeds} seeds");
}
