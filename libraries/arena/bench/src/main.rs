//! Micro benchmarks of the arena, bumpalo and bump-scope (go-arena is in `go/`, with the same
//! command line).

mod contenders;
mod scenarios;

use std::process::ExitCode;

#[global_allocator]
static HEAP: rookery_bench_meter::CountingThreads = rookery_bench_meter::CountingThreads;

fn main() -> ExitCode {
    rookery_bench_meter::main(scenarios::cases(), |_| None)
}
