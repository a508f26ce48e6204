//! What the micro benchmarks share: their command line, the clocks, and a global allocator that
//! counts.
//!
//! `list` prints the cases, and `run <scenario> <contender> <iterations>` measures one. Both print
//! JSON (bench/README.md).

mod heap;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

pub use heap::{Counting, CountingThreads, live, peak, totals};

/// One measurement, named by its scenario and contender.
pub struct Case {
    scenario: &'static str,
    contender: &'static str,
    run: Box<dyn Fn(u64) -> Figures>,
}

pub fn case(
    scenario: &'static str,
    contender: &'static str,
    run: impl Fn(u64) -> Figures + 'static,
) -> Case {
    Case { scenario, contender, run: Box::new(run) }
}

pub struct Figures {
    pub ns_per_op: f64,
    pub allocs_per_op: f64,
    pub bytes_per_op: f64,
    /// Adds a column that only some cases have.
    pub more: Option<(&'static str, f64)>,
}

impl Figures {
    /// Makes the figures of that many operations, which took that many nanoseconds in all. `before`
    /// is the state of the heap at their beginning.
    pub fn of(operations: u64, spent: u64, before: (u64, u64)) -> Figures {
        let after = totals();
        let per_op = |total: f64| total / operations as f64;
        Figures {
            ns_per_op: per_op(spent as f64),
            allocs_per_op: per_op((after.0 - before.0) as f64),
            bytes_per_op: per_op((after.1 - before.1) as f64),
            more: None,
        }
    }
}

/// The number of turns into which the iterations are split. The time is their median: if other
/// programs use the same cores, a turn is either not interrupted, or by a multiple of its length.
const TURNS: u64 = 32;
/// The turns of the warm-up, in which the allocator, buffers and pools reach their size.
const WARM_UP: u64 = 16;

/// Repeats `operation`, and drops its results.
#[inline]
pub fn repeat<T>(iterations: u64, mut operation: impl FnMut() -> T) -> Figures {
    for _ in 0..WARM_UP {
        black_box(operation());
    }
    let mut times = [0.0; TURNS as usize];
    let before = totals();
    let mut done = 0;
    for (turn, time) in (1..=TURNS).zip(&mut times) {
        let until = iterations * turn / TURNS;
        let in_turn = until - done;
        let start = Instant::now();
        while done < until {
            black_box(operation());
            done += 1;
        }
        *time = start.elapsed().as_secs_f64() * 1e9 / in_turn.max(1) as f64;
    }
    let figures = Figures::of(iterations, 0, before);
    times.sort_by(f64::total_cmp);
    Figures { ns_per_op: times[times.len() / 2], ..figures }
}

/// Returns the processor time of this process in ns. Unlike wall time, it does not include other
/// processes on a shared machine.
#[inline]
pub fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the maximum memory of the process, as the kernel reports it.
fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .map_or(0, |kib: u64| kib * 1024)
}

/// Runs the program. `other` gets arguments that are neither `list` nor `run`.
pub fn main(cases: Vec<Case>, other: impl FnOnce(&[&str]) -> Option<ExitCode>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for Case { scenario, contender, .. } in cases {
                println!(r#"{{"scenario":"{scenario}","contender":"{contender}"}}"#);
            }
            return ExitCode::SUCCESS;
        }
        ["run", scenario, contender, iterations] => {
            // The list is freed first, so that the peak of the memory belongs to the case.
            let found = cases
                .into_iter()
                .find(|case| (case.scenario, case.contender) == (scenario, contender));
            if let (Some(case), Ok(iterations @ 1..)) = (found, iterations.parse::<u64>()) {
                let Figures { ns_per_op, allocs_per_op, bytes_per_op, more } =
                    (case.run)(iterations);
                // Read before anything is allocated for printing.
                let peak = peak();
                let mut more =
                    more.map_or(String::new(), |(name, value)| format!(r#","{name}":{value:.4}"#));
                if peak > 0 {
                    more +=
                        &format!(r#","peak_bytes":{peak},"resident_bytes":{}"#, resident_peak());
                }
                println!(
                    r#"{{"scenario":"{scenario}","contender":"{contender}","iterations":{iterations},"ns_per_op":{ns_per_op:.4},"allocs_per_op":{allocs_per_op:.7},"bytes_per_op":{bytes_per_op:.4}{more}}}"#
                );
                return ExitCode::SUCCESS;
            }
        }
        _ => {
            if let Some(status) = other(&arguments) {
                return status;
            }
        }
    }
    eprintln!("usage: list | run <scenario> <contender> <iterations>; see bench/README.md");
    ExitCode::from(2)
}
