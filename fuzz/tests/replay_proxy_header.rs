//! Runs the fuzz target of the PROXY protocol with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::proxy_header::proxy_header;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/proxy_header");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        proxy_header(&seed);
        for at in 0..seed.len() {
            proxy_header(&seed[..at]);
            proxy_header(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b' ', b'\n', 0xFF] {
                proxy_header(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 9, "{seeds} seeds");
}
