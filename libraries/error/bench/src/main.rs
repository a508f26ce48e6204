//! Errors and hooks, compared with throw_error, anyhow and a plain `Arc`.

mod errors;
mod frames;
mod hooks;
mod polls;

use std::process::ExitCode;

#[global_allocator]
static HEAP: rookery_bench_meter::Counting = rookery_bench_meter::Counting;

fn main() -> ExitCode {
    let cases = [errors::cases(), frames::cases(), polls::cases(), hooks::cases()];
    rookery_bench_meter::main(cases.into_iter().flatten().collect(), |_| None)
}
