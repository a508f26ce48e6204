//! Runs the fuzz targets of static files with their corpora and variants of them, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::static_files::{
    static_files_announcement, static_files_decide, static_files_gzip, static_files_negotiate,
    static_files_windows,
};

#[test]
fn announcement() {
    replay("static_files_announcement", static_files_announcement, 5);
}

#[test]
fn decide() {
    replay("static_files_decide", static_files_decide, 20);
}

#[test]
fn gzip() {
    replay("static_files_gzip", static_files_gzip, 5);
}

#[test]
fn windows() {
    replay("static_files_windows", static_files_windows, 20);
}

#[test]
fn negotiate() {
    replay("static_files_negotiate", static_files_negotiate, 7);
}

/// Runs the target with each seed, and with each seed without one of its bytes.
fn replay(target: &str, run: fn(&[u8]), at_least: usize) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        run(&seed);
        for index in 0..seed.len() {
            run(&[&seed[..index], &seed[index + 1..]].concat());
        }
        seeds += 1;
    }
    assert!(seeds >= at_least, "{seeds} seeds of {target}");
}
