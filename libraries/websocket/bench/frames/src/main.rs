//! Single frames, and a message there and back, in memory: `rookery-websocket`, fastwebsockets,
//! tokio-websockets and tungstenite. coder/websocket is in `go/`. bench/README.md describes the
//! interface.

mod contenders;
mod ours;
mod transports;

use std::future::Future;
use std::process::ExitCode;

use ours::Token;
use rookery_bench_meter::{Case, Figures, processor_time, totals};

#[global_allocator]
static HEAP: rookery_bench_meter::Counting = rookery_bench_meter::Counting;

/// A measurement.
pub struct Run {
    iterations: u64,
    figures: Option<Figures>,
}

/// Counts iterations. The first ones warm up, and then the clock starts.
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
        let spent = processor_time() - iterations.start;
        self.figures = Some(Figures::of(self.iterations, spent, iterations.heap));
    }

    pub fn measure(&mut self, mut operation: impl FnMut()) {
        let mut iterations = self.start();
        while iterations.advance() {
            operation();
        }
        self.stop(iterations);
    }
}

impl Iterations {
    #[inline]
    pub fn advance(&mut self) -> bool {
        if self.warm_up > 0 {
            self.warm_up -= 1;
            if self.warm_up == 0 {
                self.heap = totals();
                self.start = processor_time();
            }
            return true;
        }
        let is_more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_more
    }
}

/// Returns a binary frame of 512 bytes as a client sends it.
pub fn masked_512() -> Vec<u8> {
    [&[0x82, 0xFE, 2, 0, 1, 2, 3, 4][..], &[0; 512]].concat()
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(tokio::task::unconstrained(future));
}

/// Makes a case that is measured by the scenario's own clock, which starts after the warm-up.
fn case(scenario: &'static str, contender: &'static str, go: fn(&mut Run)) -> Case {
    rookery_bench_meter::case(scenario, contender, move |iterations| {
        let mut run = Run { iterations, figures: None };
        go(&mut run);
        run.figures.expect("every scenario stops its clock")
    })
}

fn main() -> ExitCode {
    let cases = vec![
        case("header", "ours", |run| block_on(ours::header(run, Token::None))),
        case("header", "ours-decoder", ours::header_decode),
        case("header", "ours-parse", ours::header_parse),
        case("header-cancellable", "ours", |run| block_on(ours::header(run, Token::CanFire))),
        case("payload-512", "ours", |run| block_on(ours::payload(run, Token::None))),
        case("payload-512", "ours-decoder", ours::payload_decode),
        case("payload-512-cancellable", "ours", |run| block_on(ours::payload(run, Token::CanFire))),
        case("read-512", "ours", |run| block_on(ours::read_masked(run, Token::None))),
        case("read-512", "fastwebsockets", |run| block_on(contenders::fast::read_masked(run))),
        case("read-512", "tokio-websockets", |run| {
            block_on(contenders::tokio_ws::read_masked(run))
        }),
        case("read-512", "tungstenite", contenders::sync::read_masked),
        case("read-512-cancellable", "ours", |run| {
            block_on(ours::read_masked(run, Token::CanFire))
        }),
        case("write-512", "ours", |run| block_on(ours::write(run, Token::None))),
        case("write-512", "fastwebsockets", |run| block_on(contenders::fast::write(run))),
        case("write-512", "tokio-websockets", |run| block_on(contenders::tokio_ws::write(run))),
        case("write-512", "tungstenite", contenders::sync::write),
        case("write-512-cancellable", "ours", |run| block_on(ours::write(run, Token::CanFire))),
        case("echo-512", "ours", |run| block_on(ours::echo(run, Token::None))),
        case("echo-512", "fastwebsockets", |run| block_on(contenders::fast::echo(run))),
        case("echo-512", "tokio-websockets", |run| block_on(contenders::tokio_ws::echo(run))),
        case("echo-512", "tungstenite", contenders::sync::echo),
        case("echo-512-cancellable", "ours", |run| block_on(ours::echo(run, Token::CanFire))),
    ];
    rookery_bench_meter::main(cases, |_| None)
}
