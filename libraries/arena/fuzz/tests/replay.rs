//! Runs the fuzz targets of the arena with their corpora, and with some hundred random inputs, on
//! stable Rust.

use std::path::Path;

use rookery_arena_fuzz::{
    arena_collections, arena_layout, arena_operations, arena_pool, arena_sync,
};

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 5] = [
    ("arena_layout", arena_layout),
    ("arena_operations", arena_operations),
    ("arena_collections", arena_collections),
    ("arena_pool", arena_pool),
    ("arena_sync", arena_sync),
];

#[test]
fn the_corpora_pass() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let files: Vec<_> = std::fs::read_dir(folder).expect("a corpus").collect();
        assert!(files.len() >= 6, "{name} has {} seeds", files.len());
        for file in files {
            target(
                &std::fs::read(file.expect("a readable folder").path()).expect("a readable seed"),
            );
        }
    }
}

#[test]
fn random_inputs_pass() {
    let mut state = 1u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for (_, target) in TARGETS {
        for round in 0..300usize {
            let input: Vec<u8> = (0..5 * round % 700).map(|_| next()).collect();
            target(&input);
        }
    }
}
