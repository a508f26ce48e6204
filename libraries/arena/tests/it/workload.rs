//! The workload that issue 2 of go-arena reports: 29 million small allocations that grow beyond 180
//! MB. It runs only on request and in release: `cargo test --release -p rookery-arena --test it
//! workload -- --ignored`. `waste.rs` has a small version.

use std::alloc::Layout;
use std::process::Command;

use rookery_arena::{Arena, Growth};

use crate::heap;
use crate::random::Random;

const ALL: u64 = 29_000_000;

fn growths() -> [(&'static str, Growth); 2] {
    [("32 KiB throughout", Growth::fixed(32 * 1024)), ("the default growth", Growth::default())]
}

/// Allocates and writes `count` times 1 to 12 bytes.
fn allocate(arena: &Arena, random: &mut Random, count: u64) {
    for n in 0..count {
        let size = 1 + (random.next() >> 32) as usize * 12 / (1 << 32);
        let start = arena.alloc_layout(Layout::from_size_align(size, 1).expect("a small layout"));
        // SAFETY: at least one byte was just allocated.
        unsafe { start.write(n as u8) };
    }
}

#[test]
#[ignore = "29 million allocations"]
fn the_second_round_calls_malloc_not_once() {
    for (name, growth) in growths() {
        let mut arena = Arena::with_growth(growth);
        let first = heap::calls(|| allocate(&arena, &mut Random(1), ALL));
        assert!(arena.len() > 180_000_000, "{}", arena.len());
        let capacity = arena.capacity();
        arena.reset();
        let second = heap::calls(|| allocate(&arena, &mut Random(1), ALL));
        println!("{name}: {} calls of malloc for {capacity} bytes, then {}", first.0, second.0);
        assert_eq!((second, arena.capacity()), ((0, 0), capacity));
    }
}

#[test]
#[ignore = "29 million allocations, counted by callgrind"]
fn the_second_half_costs_per_allocation_what_the_first_does() {
    for (at, (name, _)) in growths().into_iter().enumerate() {
        let (first, second) =
            (instructions_per_allocation(at, 0), instructions_per_allocation(at, ALL / 2));
        println!(
            "{name}: {first:.3} instructions per allocation in the first half, \
             {second:.3} in the second"
        );
        assert!((second / first - 1.0).abs() <= 0.05);
    }
}

/// Returns callgrind's count for 2 million allocations after the first `skipped`, as the difference
/// of two runs of `counted`.
#[allow(clippy::cast_precision_loss)] // far below 2^52
fn instructions_per_allocation(growth: usize, skipped: u64) -> f64 {
    let run = |count: u64| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe().expect("this test"))
            .args(["--exact", "workload::counted", "--ignored"])
            .env(COUNTED, format!("{growth} {}", skipped + count))
            .output()
            .expect("valgrind is installed");
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = log
            .lines()
            .find(|line| line.contains("Collected :"))
            .unwrap_or_else(|| panic!("{log}"));
        line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    (run(3_000_000) - run(1_000_000)) as f64 / 2_000_000.0
}

/// The program that callgrind runs; not a test by itself.
#[test]
#[ignore = "part of another test"]
fn counted() {
    let Ok(counted) = std::env::var(COUNTED) else { return };
    let (growth, count) = counted.split_once(' ').expect("two numbers");
    let arena = Arena::with_growth(growths()[growth.parse::<usize>().expect("a number")].1);
    allocate(&arena, &mut Random(1), count.parse().expect("a number"));
}

const COUNTED: &str = "ROOKERY_ARENA_COUNTED";
