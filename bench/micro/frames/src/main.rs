//! Single frames, and a message there and back, in memory: `rookery-websocket` beside fastwebsockets, tokio-websockets and
//! tungstenite. coder/websocket is in `go/`. See bench/README.md for the contract.

mod heap;
mod ours;
mod peers;
mod transports;

use std::future::Future;
use std::process::ExitCode;

use ours::Token;

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

/// One measurement.
pub struct Run {
    iterations: u64,
    measured: Option<Measured>,
}

struct Measured {
    nanoseconds: u64,
    allocations: u64,
    bytes: u64,
}

/// Counts iterations: the first ones warm up, then the clock runs.
pub struct Iterations {
    warm_up: u64,
    left: u64,
    start: u64,
    heap: (u64, u64),
}

const WARM_UP: u64 = 1000;

impl Run {
    pub fn start(&self) -> Iterations {
        Iterations { warm_up: WARM_UP, left: self.iterations, start: 0, heap: (0, 0) }
    }

    pub fn stop(&mut self, iterations: Iterations) {
        let nanoseconds = cpu_time() - iterations.start;
        let (allocations, bytes) = heap::counted();
        self.measured = Some(Measured {
            nanoseconds,
            allocations: allocations - iterations.heap.0,
            bytes: bytes - iterations.heap.1,
        });
    }

    pub fn measure(&mut self, mut operation: impl FnMut()) {
        let mut iterations = self.start();
        while iterations.next() {
            operation();
        }
        self.stop(iterations);
    }
}

impl Iterations {
    #[inline]
    pub fn next(&mut self) -> bool {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            if self.warm_up == 0 {
                self.heap = heap::counted();
                self.start = cpu_time();
            }
            return true;
        }
        let is_more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_more
    }
}

/// CPU time of the process in ns: on a shared machine the clock on the wall measures the others too.
fn cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A binary frame of 512 bytes as a client sends it.
pub fn masked_512() -> Vec<u8> {
    [&[0x82, 0xFE, 2, 0, 1, 2, 3, 4][..], &[0; 512]].concat()
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(tokio::task::unconstrained(future));
}

type Scenario = (&'static str, &'static str, fn(&mut Run), &'static str);

const SCENARIOS: &[Scenario] = &[
    (
        "header",
        "ours",
        |run| block_on(ours::header(run, Token::None)),
        "a frame of no payload, read by a connection",
    ),
    ("header", "ours-decoder", ours::header_decode, "the same, by the decoder alone"),
    ("header", "ours-parse", ours::header_parse, "the same, the header alone"),
    ("header-cancellable", "ours", |run| block_on(ours::header(run, Token::CanFire)), "with a canceller"),
    (
        "payload-512",
        "ours",
        |run| block_on(ours::payload(run, Token::None)),
        "a frame of 512 bytes, header included",
    ),
    ("payload-512", "ours-decoder", ours::payload_decode, "the same, by the decoder alone"),
    (
        "payload-512-cancellable",
        "ours",
        |run| block_on(ours::payload(run, Token::CanFire)),
        "with a canceller",
    ),
    (
        "read-512",
        "ours",
        |run| block_on(ours::read_masked(run, Token::None)),
        "a masked frame, copied in and unmasked",
    ),
    ("read-512", "fastwebsockets", |run| block_on(peers::fast::read_masked(run)), "read_frame"),
    ("read-512", "tokio-websockets", |run| block_on(peers::tokio_ws::read_masked(run)), "next"),
    ("read-512", "tungstenite", peers::sync::read_masked, "read"),
    (
        "read-512-cancellable",
        "ours",
        |run| block_on(ours::read_masked(run, Token::CanFire)),
        "with a canceller",
    ),
    ("write-512", "ours", |run| block_on(ours::write(run, Token::None)), "send"),
    ("write-512", "fastwebsockets", |run| block_on(peers::fast::write(run)), "write_frame"),
    ("write-512", "tokio-websockets", |run| block_on(peers::tokio_ws::write(run)), "send"),
    ("write-512", "tungstenite", peers::sync::write, "send"),
    (
        "write-512-cancellable",
        "ours",
        |run| block_on(ours::write(run, Token::CanFire)),
        "raced with a notification",
    ),
    (
        "echo-512",
        "ours",
        |run| block_on(ours::echo(run, Token::None)),
        "there and back over a pipe in memory",
    ),
    ("echo-512", "fastwebsockets", |run| block_on(peers::fast::echo(run)), "the same"),
    ("echo-512", "tokio-websockets", |run| block_on(peers::tokio_ws::echo(run)), "the same"),
    ("echo-512", "tungstenite", peers::sync::echo, "the same, without tasks"),
    (
        "echo-512-cancellable",
        "ours",
        |run| block_on(ours::echo(run, Token::CanFire)),
        "with a canceller on both sides",
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => {
            for (scenario, peer, _, what) in SCENARIOS {
                println!("{{\"scenario\":\"{scenario}\",\"peer\":\"{peer}\",\"what\":\"{what}\"}}");
            }
            ExitCode::SUCCESS
        }
        ["run", scenario, peer, iterations] => {
            let found = SCENARIOS.iter().find(|(name, whose, ..)| (*name, *whose) == (scenario, peer));
            let (Some((_, _, go, _)), Ok(iterations)) = (found, iterations.parse()) else {
                eprintln!("no such scenario, peer or number");
                return ExitCode::from(2);
            };
            let mut run = Run { iterations, measured: None };
            go(&mut run);
            let measured = run.measured.expect("every scenario stops its clock");
            let per_op = |total: u64| total as f64 / iterations as f64;
            println!(
                "{{\"scenario\":\"{scenario}\",\"peer\":\"{peer}\",\"iterations\":{iterations},\"ns_per_op\":{},\"allocs_per_op\":{},\"bytes_per_op\":{}}}",
                per_op(measured.nanoseconds),
                per_op(measured.allocations),
                per_op(measured.bytes),
            );
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: list | run SCENARIO PEER ITERATIONS");
            ExitCode::from(2)
        }
    }
}
