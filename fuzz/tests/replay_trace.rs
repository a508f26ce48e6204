//! Runs the fuzz target of W3C Trace Context with its corpus and variants of it, on stable Rust.

use std::fs;
use std::path::Path;

use rookery_exchange::{TraceContext, is_trace_state};
use rookery_fuzz::trace::trace_context;

/// Runs the target with each seed, with each prefix of a seed, and with one byte removed or
/// replaced.
#[test]
fn replay() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/trace_context");
    let (mut parents, mut states) = (0, 0);
    for entry in fs::read_dir(&corpus).unwrap() {
        let seed = fs::read(entry.unwrap().path()).unwrap();
        parents += usize::from(TraceContext::parse(&seed).is_some());
        states += usize::from(is_trace_state(&seed));
        trace_context(&seed);
        for at in 0..seed.len() {
            trace_context(&seed[..at]);
            trace_context(&[&seed[..at], &seed[at + 1..]].concat());
            for other in [0, b'-', b'0', b'f', b'F', b',', b'=', b' ', 0xFF] {
                trace_context(&[&seed[..at], &[other], &seed[at + 1..]].concat());
            }
        }
    }
    assert!(parents >= 3 && states >= 3, "{parents} {states}");
}
