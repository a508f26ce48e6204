//! The current code, and the same code with one of the removed costs put back by a patch: `malloc`,
//! `twice`, `closure` or `timer`.
//!
//! `list` prints the cases of this build. `run <scenario> <contender> <iterations>` measures one of
//! them and prints a JSON object. `serve <port> hello|failure|ws` is a server without R for a load
//! generator.

mod frame;
mod head;
mod rejection;
mod serve;

use std::process::ExitCode;

use rookery_bench_meter::{Counting, Figures, case};

#[global_allocator]
static HEAP: Counting = Counting;

/// The cost that this build has put back. bench/runner/build.py applies the patch and sets the
/// variable.
const COST: &str = match option_env!("ROOKERY_BENCH_COST") {
    Some(cost) => cost,
    None => "ours",
};

/// The cases, each with the costs on its code path.
type Scenario = (&'static str, fn(u64) -> Figures, &'static [&'static str]);
const SCENARIOS: [Scenario; 3] = [
    ("head", head::run, &["malloc"]),
    ("rejection", rejection::run, &["twice"]),
    ("frame", frame::run, &["closure", "timer"]),
];

fn main() -> ExitCode {
    let here = SCENARIOS.iter().filter(|(_, _, costs)| COST == "ours" || costs.contains(&COST));
    rookery_bench_meter::main(
        here.map(|(name, run, _)| case(name, COST, run)).collect(),
        |arguments| {
            let ["serve", port, workload] = arguments else { return None };
            let (port, workload) = (port.parse().ok()?, serve::Workload::named(workload)?);
            Some(match serve::run(port, workload) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            })
        },
    )
}
