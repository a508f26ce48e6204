//! `list` names the cases; `run <scenario> <peer> <iterations>` measures one and prints a JSON object.

mod errors;
mod frames;
mod hooks;
mod meter;
mod polls;

use std::process::ExitCode;

use meter::{Case, Figures};

fn main() -> ExitCode {
    let cases: Vec<Case> =
        [errors::cases(), frames::cases(), polls::cases(), hooks::cases()].into_iter().flatten().collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for Case { scenario, peer, what, .. } in cases {
                println!(r#"{{"scenario":"{scenario}","peer":"{peer}","what":"{what}"}}"#);
            }
            ExitCode::SUCCESS
        }
        ["run", scenario, peer, iterations] => {
            let case = cases.iter().find(|case| case.scenario == scenario && case.peer == peer);
            match (case, iterations.parse()) {
                (Some(case), Ok(iterations)) if iterations > 0 => {
                    print(case, iterations, &(case.run)(iterations));
                    ExitCode::SUCCESS
                }
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn print(case: &Case, iterations: u64, figures: &Figures) {
    println!(
        r#"{{"scenario":"{}","peer":"{}","iterations":{iterations},"ns_per_op":{:.4},"allocs_per_op":{},"bytes_per_op":{}}}"#,
        case.scenario, case.peer, figures.ns_per_op, figures.allocs_per_op, figures.bytes_per_op
    );
}

fn usage() -> ExitCode {
    eprintln!("usage: rookery-bench-error list | run <scenario> <peer> <iterations>");
    ExitCode::from(2)
}
