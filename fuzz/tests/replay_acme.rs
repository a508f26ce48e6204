//! Runs the fuzz target of an authority's responses with its corpus and variants of it, on stable
//! Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::acme::acme_response;
use rookery_server::tls::IssuedCertificate;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/acme_response");
    let mut seeds = 0;
    for entry in fs::read_dir(&corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        acme_response(&seed);
        for at in 0..seed.len() {
            acme_response(&seed[..at]);
            acme_response(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b'"', 0x30, 0xFF] {
                acme_response(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= 4, "{seeds} seeds");
    // The seeds contain what their names say.
    let read = |name: &str| fs::read(corpus.join(name)).unwrap();
    assert!(rookery_acme::read_for_fuzzer(&read("problem")).is_some());
    assert!(IssuedCertificate::read(&read("certificate")).is_some());
}
