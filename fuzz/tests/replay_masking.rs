//! Runs the fuzz target of masking with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::masking::masking;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/masking");
    let (mut seeds, mut secrets) = (0, 0);
    for entry in fs::read_dir(&corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        masking(&seed);
        seeds += 1;
        secrets += usize::from(rookery_exchange::masked(&seed).any(|part| part == b"<...>"));
        for at in 0..seed.len() {
            masking(&seed[..at]);
            masking(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b'/', b'?', b'&', b'=', b'%', b';', b'#', b':', b'@', b'[', 0xFF] {
                masking(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
    }
    assert!(seeds >= 8 && secrets >= 7, "{seeds} {secrets}");
}
