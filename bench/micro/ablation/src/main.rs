//! What is shipped, and the same with one of the costs put back by a patch: `malloc`, `twice`, `closure`, `timer`.
//!
//! `list` names the cases of this build; `run <scenario> <peer> <iterations>` measures one and prints a JSON object;
//! `serve <port> hello|failure|ws` is a server without R for a load generator.

mod frame;
mod head;
mod meter;
mod rejection;
mod serve;

use std::process::ExitCode;

use meter::Case;

/// The cost that this build has put back: bench/runner/build.py applies the patch and says which.
const COST: &str = match option_env!("ROOKERY_BENCH_COST") {
    Some(cost) => cost,
    None => "ours",
};

/// Each with the costs that lie on its path.
const CASES: [(Case, &[&str]); 3] =
    [(head::CASE, &["malloc"]), (rejection::CASE, &["twice"]), (frame::CASE, &["closure", "timer"])];

fn main() -> ExitCode {
    let cases =
        CASES.iter().filter(|(_, costs)| COST == "ours" || costs.contains(&COST)).map(|(case, _)| case);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for Case { scenario, what, .. } in cases {
                println!(r#"{{"scenario":"{scenario}","peer":"{COST}","what":"{what}"}}"#);
            }
            ExitCode::SUCCESS
        }
        ["run", scenario, COST, iterations] => {
            let case = cases.into_iter().find(|case| case.scenario == scenario);
            match (case, iterations.parse::<u64>()) {
                (Some(case), Ok(iterations)) if iterations > 0 => {
                    let figures = (case.run)(iterations);
                    println!(
                        r#"{{"scenario":"{scenario}","peer":"{COST}","iterations":{iterations},"ns_per_op":{:.4},"allocs_per_op":{},"bytes_per_op":{}}}"#,
                        figures.ns_per_op, figures.allocs_per_op, figures.bytes_per_op
                    );
                    ExitCode::SUCCESS
                }
                _ => usage(),
            }
        }
        ["serve", port, workload] => {
            let Ok(port) = port.parse() else { return usage() };
            let Some(workload) = serve::Workload::named(workload) else { return usage() };
            match serve::run(port, workload) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: rookery-bench-ablation list | run <scenario> {COST} <iterations> | serve <port> hello|failure|ws"
    );
    ExitCode::from(2)
}
