//! Runs the fuzz targets of WebSockets with their corpora and variants of them, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_websocket_fuzz::{
    websocket_differential, websocket_extensions, websocket_frames, websocket_halves,
    websocket_handshake, websocket_inflate, websocket_workload,
};

#[test]
fn differential() {
    replay("websocket_differential", websocket_differential, 10);
}

#[test]
fn extensions() {
    replay("websocket_extensions", websocket_extensions, 8);
}

#[test]
fn frames() {
    replay("websocket_frames", websocket_frames, 10);
}

#[test]
fn halves() {
    replay("websocket_halves", websocket_halves, 6);
}

#[test]
fn handshake() {
    replay("websocket_handshake", websocket_handshake, 4);
}

#[test]
fn inflate() {
    replay("websocket_inflate", websocket_inflate, 5);
}

#[test]
fn workload() {
    replay("websocket_workload", websocket_workload, 6);
}

/// Runs the target with each seed, with each seed without one of its bytes, and with one of two
/// bits of a byte flipped.
fn replay(target: &str, run: fn(&[u8]), at_least: usize) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let mut seed = fs::read(entry.unwrap().path()).unwrap();
        run(&seed);
        for index in 0..seed.len().min(400) {
            run(&[&seed[..index], &seed[index + 1..]].concat());
            for bit in [0, 6] {
                seed[index] ^= 1 << bit;
                run(&seed);
                seed[index] ^= 1 << bit;
            }
        }
        seeds += 1;
    }
    assert!(seeds >= at_least, "{seeds} seeds of {target}");
}
