//! Each cost that Rookery left out put back, one at a time, around the same code.
//!
//! `list` names the cases; `run <scenario> <peer> <iterations>` measures one and prints a JSON object;
//! `serve <port> <cost>` echoes WebSocket messages with that cost in each read.

mod frame;
mod head;
mod meter;
mod rejection;
mod serve;

use std::process::ExitCode;

use meter::Case;

fn main() -> ExitCode {
    let cases: Vec<Case> =
        [head::cases(), rejection::cases(), frame::cases()].into_iter().flatten().collect();
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
            match (case, iterations.parse::<u64>()) {
                (Some(case), Ok(iterations)) if iterations > 0 => {
                    let figures = (case.run)(iterations);
                    println!(
                        r#"{{"scenario":"{scenario}","peer":"{peer}","iterations":{iterations},"ns_per_op":{:.4},"allocs_per_op":{},"bytes_per_op":{}}}"#,
                        figures.ns_per_op, figures.allocs_per_op, figures.bytes_per_op
                    );
                    ExitCode::SUCCESS
                }
                _ => usage(),
            }
        }
        ["serve", port, cost] => match (port.parse(), cost.parse()) {
            (Ok(port), Ok(cost)) => match serve::run(port, cost) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            },
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: rookery-bench-ablation list | run <scenario> <peer> <iterations> | serve <port> ours|closure|timer"
    );
    ExitCode::from(2)
}
