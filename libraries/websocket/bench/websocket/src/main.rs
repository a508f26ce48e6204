//! Echo over loopback with servers of one thread in a process of their own. They are ranked by the
//! server's CPU time per message, because the load generator limits the throughput. bench/README.md
//! describes the interface.
//!
//! `ns_per_op` is the server's CPU time for a message. `bytes_per_op` is the size of an echo on the
//! wire, and for idle connections the resident memory of one.

mod load;
mod process;
mod servers;

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use load::{Load, Message};
use process::Server;

enum Scenario {
    Echo { len: usize, connections: usize },
    Deflate { connections: usize },
    Idle { connections: usize },
}

const SCENARIOS: &[(&str, Scenario)] = &[
    ("echo-64-10", Scenario::Echo { len: 64, connections: 10 }),
    ("echo-64-100", Scenario::Echo { len: 64, connections: 100 }),
    ("echo-64-500", Scenario::Echo { len: 64, connections: 500 }),
    ("echo-16k-10", Scenario::Echo { len: 16 << 10, connections: 10 }),
    ("echo-16k-500", Scenario::Echo { len: 16 << 10, connections: 500 }),
    ("deflate-4k-50", Scenario::Deflate { connections: 50 }),
    ("idle-5000", Scenario::Idle { connections: 5000 }),
];

fn contenders(scenario: &Scenario) -> Vec<&'static str> {
    match scenario {
        // None of the other libraries in Rust compresses.
        Scenario::Deflate { .. } => vec!["ours", "coder", "ws"],
        _ => servers::NAMES.iter().copied().chain(["coder", "coder-read"]).collect(),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["list"] => list(),
        ["serve", contender, mode] => servers::serve(contender, mode == "deflate"),
        ["run", scenario, contender, iterations] => run(scenario, contender, iterations),
        _ => Err(io::Error::other(
            "usage: list | run SCENARIO CONTENDER ITERATIONS | serve CONTENDER plain|deflate",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> io::Result<()> {
    // Built here, while the network may still be available. A contender that is not available is
    // left out, with the reason.
    let (coder, ws) = (process::coder(), process::ws());
    for (name, built) in [("coder", &coder), ("ws", &ws)] {
        if let Err(error) = built {
            eprintln!("{name}: {error}");
        }
    }
    let is_here = |contender: &str| match contender {
        "coder" | "coder-read" => coder.is_ok(),
        "ws" => ws.is_ok(),
        _ => true,
    };
    for (name, scenario) in SCENARIOS {
        for contender in contenders(scenario).iter().filter(|contender| is_here(contender)) {
            println!(
                "{{\"scenario\":\"{name}\",\"contender\":\"{contender}\",\"what\":\"{contender}\"}}"
            );
        }
    }
    Ok(())
}

fn run(name: &str, contender: &str, iterations: &str) -> io::Result<()> {
    let found = SCENARIOS
        .iter()
        .find(|(known, scenario)| *known == name && contenders(scenario).contains(&contender));
    let (Some((_, scenario)), Ok(iterations)) = (found, iterations.parse::<u64>()) else {
        return Err(io::Error::other("no such scenario, contender or number"));
    };
    raise_descriptor_limit();
    let server = Server::start(contender, matches!(scenario, Scenario::Deflate { .. }))?;
    // The server has the last core for itself, and the load generator uses the others.
    let cores = std::thread::available_parallelism()?.get();
    if cores > 1 {
        server.pin(cores - 1)?;
        process::pin(0, 0)?;
    }
    match scenario {
        Scenario::Echo { len, connections } => {
            echo(name, contender, &server, *connections, &Message::plain(*len), iterations)
        }
        Scenario::Deflate { connections } => {
            echo(name, contender, &server, *connections, &Message::json(4 << 10), iterations)
        }
        Scenario::Idle { connections } => idle(name, contender, &server, *connections),
    }
}

fn echo(
    name: &str,
    contender: &str,
    server: &Server,
    connections: usize,
    message: &Message,
    iterations: u64,
) -> io::Result<()> {
    let mut load = Load::open(server.port, connections, message)?;
    load.run((iterations / 10).max(connections as u64))?;
    let before = server.cpu_time()?;
    let start = Instant::now();
    let done = load.run(iterations.max(connections as u64))?;
    let seconds = start.elapsed().as_secs_f64();
    let spent = server.cpu_time()? - before;
    let messages = done.messages as f64;
    println!(
        "{{\"scenario\":\"{name}\",\"contender\":\"{contender}\",\"iterations\":{iterations},\"ns_per_op\":{},\"bytes_per_op\":{},\"messages_per_second\":{},\"peak_bytes\":{}}}",
        spent as f64 / messages,
        done.bytes_received as f64 / messages,
        messages / seconds,
        server.resident_bytes()?,
    );
    Ok(())
}

fn idle(name: &str, contender: &str, server: &Server, connections: usize) -> io::Result<()> {
    let message = Message::plain(64);
    // First connections, because what a server allocates once is not the cost of a connection.
    let mut first = Load::open(server.port, 20, &message)?;
    first.run(200)?;
    let before = server.resident_bytes()?;
    // Each connection has been used, so a buffer that stays after a message counts.
    let mut load = Load::open(server.port, connections, &message)?;
    load.run(2 * connections as u64)?;
    std::thread::sleep(Duration::from_secs(1));
    let cpu = server.cpu_time()?;
    std::thread::sleep(Duration::from_secs(1));
    let idle = server.cpu_time()? - cpu;
    let each = server.resident_bytes()?.saturating_sub(before) as f64 / connections as f64;
    println!(
        "{{\"scenario\":\"{name}\",\"contender\":\"{contender}\",\"iterations\":1,\"ns_per_op\":0,\"bytes_per_op\":{each},\"idle_cpu_ns_per_second\":{idle}}}"
    );
    Ok(())
}

/// Raises the limit of descriptors, because 5,000 connections need as many.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing, then for reading.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
