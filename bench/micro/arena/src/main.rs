//! Micro benchmarks of the arena beside bumpalo and bump-scope (go-arena's are in `go/`, with the same command line).
//!
//! `list` prints what there is; `run <scenario> <peer> <iterations>` runs one once and prints one JSON object.

mod heap;
mod peers;
mod scenarios;

use std::process::ExitCode;

use scenarios::SCENARIOS;

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for scenario in SCENARIOS {
                for (peer, _) in scenario.peers {
                    println!(r#"{{"scenario":"{}","peer":"{peer}","what":"{}"}}"#, scenario.name, scenario.what);
                }
            }
            ExitCode::SUCCESS
        }
        ["run", name, peer, iterations] => {
            let run = SCENARIOS
                .iter()
                .filter(|scenario| scenario.name == name)
                .flat_map(|scenario| scenario.peers)
                .find(|(found, _)| *found == peer);
            match (run, iterations.parse()) {
                (Some((_, run)), Ok(iterations)) => {
                    println!("{}", run(iterations).json(name, peer, iterations));
                    ExitCode::SUCCESS
                }
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: rookery-bench-arena list | run <scenario> <peer> <iterations>");
    ExitCode::from(2)
}
