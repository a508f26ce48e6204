//! Runs the fuzz target of the files of R's profiler with its corpus and variants of it, on stable
//! Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::rprof::rprof;
use rookery_status::JoinedProfile;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/rprof");
    let mut samples = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        samples += JoinedProfile::new(10_000, 1 << 20).add(&seed).samples;
        rprof(&seed);
        for at in 0..seed.len() {
            rprof(&seed[..at]);
            rprof(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b'"', b' ', b'#', b':', b'1', b'\n', 0x1B, 0xC3, 0xFF] {
                rprof(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        // Long enough to exceed the maximum size.
        rprof(&[&seed[..], &seed.repeat(40)].concat());
    }
    assert!(samples >= 5, "{samples}");
}
