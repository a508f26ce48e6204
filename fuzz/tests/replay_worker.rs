//! Runs the fuzz targets of supervisor and worker with their corpora and variants of them, on
//! stable Rust.

use std::fs;
use std::path::Path;

use rookery_fuzz::worker::record::record;
use rookery_fuzz::worker::routes::routes;
use rookery_fuzz::worker::{cookie, message};

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
fn replay(target: &str, run: fn(&[u8]), least: usize) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut seeds = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        run(&seed);
        for at in 0..seed.len() {
            run(&seed[..at]);
            run(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b' ', b'-', b'0', b'%', b'*', 0xFF] {
                run(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
        seeds += 1;
    }
    assert!(seeds >= least, "{seeds} seeds");
}

#[test]
fn replay_cookies() {
    replay("worker_cookie", cookie, 4);
}

#[test]
fn replay_messages() {
    replay("worker_message", message, 4);
}

#[test]
fn replay_routes() {
    // Without variants of the seeds, because a table has 275 kB.
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/worker_routes");
    let seeds: Vec<_> = fs::read_dir(corpus).unwrap().map(|it| it.unwrap().path()).collect();
    assert!(seeds.len() >= 5);
    for seed in seeds {
        let seed = fs::read(seed).unwrap();
        (0..=seed.len()).step_by(5).for_each(|end| routes(&seed[..end]));
        routes(&seed);
    }
    // More routes than the table has places for.
    let lines: String = (0..400).map(|at| format!("y/r{at}\n")).collect();
    routes(lines.as_bytes());
}

#[test]
fn replay_worker_records() {
    replay("worker_record", record, 8);
}
