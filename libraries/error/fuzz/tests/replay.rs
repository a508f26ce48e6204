//! Runs the fuzz target of error hooks with its corpus, variants of it and some hundred random
//! inputs, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_error_fuzz::error_hooks;

#[test]
fn hooks() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/error_hooks");
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let mut seed = fs::read(entry.unwrap().path()).unwrap();
        error_hooks(&seed);
        for index in 0..seed.len() {
            error_hooks(&[&seed[..index], &seed[index + 1..]].concat());
            seed[index] ^= 1;
            error_hooks(&seed);
            seed[index] ^= 1;
        }
        seeds += 1;
    }
    assert!(seeds >= 6, "{seeds} seeds");
}

#[test]
fn random_programs() {
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for round in 0..500 {
        let program: Vec<u8> = (0..round % 200).map(|_| next()).collect();
        error_hooks(&program);
    }
}
