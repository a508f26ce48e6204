//! The scenarios.

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::{Barrier, RwLock};
use std::time::Instant;

use rookery_arena::{Arena, Growth, SyncArena};
use rookery_bench_meter::{self as meter, Case, Figures, case};

use crate::contenders::{BumpScope, Bumpalo, Contender, Ours, OursFixed};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("full-chunks", "ours-10", behind::<10>),
        case("full-chunks", "ours-100", behind::<100>),
        case("full-chunks", "ours-1000", behind::<1000>),
        case("workload", "ours-32k", workload::<OursFixed>),
        case("workload-halves", "ours-first", half::<Ours, 0>),
        case("workload-halves", "ours-second", half::<Ours, 14_500_000>),
        case("workload-halves", "ours-32k-first", half::<OursFixed, 0>),
        case("workload-halves", "ours-32k-second", half::<OursFixed, 14_500_000>),
        case("concurrent", "ours", concurrent),
    ];
    for_each::<Ours>("ours", &mut cases);
    for_each::<Bumpalo>("bumpalo", &mut cases);
    for_each::<BumpScope>("bump-scope", &mut cases);
    cases
}

/// The scenarios of all arenas.
fn for_each<P: Contender + 'static>(contender: &'static str, cases: &mut Vec<Case>) {
    cases.extend([
        case("const-layout", contender, constant::<P>),
        case("dynamic-layout", contender, dynamic::<P>),
        case("dynamic-layout-repeated", contender, repeated::<P>),
        case("workload", contender, workload::<P>),
        case("workload-before", contender, workload::<P>),
        case("waste-mixed", contender, |count| waste::<P>(count, mixed)),
        case("waste-bimodal", contender, |count| waste::<P>(count, bimodal)),
        case("waste-large", contender, |count| waste::<P>(count, large)),
    ]);
}

/// Measures `work`, which performs that many operations, in processor time, so that other processes
/// do not count.
fn measure(operations: u64, work: impl FnOnce()) -> Figures {
    let before = meter::totals();
    let start = meter::processor_time();
    work();
    Figures::of(operations, meter::processor_time() - start, before)
}

/// The number of allocations between two resets.
const PERIOD: u64 = 1024;

fn constant<P: Contender>(iterations: u64) -> Figures {
    let mut contender = P::make();
    measure(iterations, || {
        for _ in 0..iterations / PERIOD {
            for _ in 0..PERIOD {
                black_box(contender.alloc_block());
            }
            contender.reset();
        }
    })
}

fn dynamic<P: Contender>(iterations: u64) -> Figures {
    let mut random = 1;
    let mut contender = P::make();
    measure(iterations, || {
        for _ in 0..iterations / PERIOD {
            for _ in 0..PERIOD {
                let bits = next(&mut random) as usize;
                let (size, align) = (1 + bits % 64, ALIGN[bits >> 6 & 7]);
                // SAFETY: the alignment is a power of two, and the size is far below `isize::MAX`.
                let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
                black_box(contender.alloc(layout));
            }
            contender.reset();
        }
    })
}

/// Alignments as programs request them, mostly of words and bytes.
const ALIGN: [usize; 8] = [1, 1, 2, 4, 8, 8, 8, 16];

fn repeated<P: Contender>(iterations: u64) -> Figures {
    let mut random = 1;
    let layouts: Vec<Layout> = (0..PERIOD)
        .map(|_| {
            let bits = next(&mut random) as usize;
            Layout::from_size_align(1 + bits % 64, ALIGN[bits >> 6 & 7]).expect("a small layout")
        })
        .collect();
    let mut contender = P::make();
    measure(iterations, || {
        for _ in 0..iterations / PERIOD {
            for layout in black_box(&layouts) {
                black_box(contender.alloc(*layout));
            }
            contender.reset();
        }
    })
}

/// The number of allocations of each thread between two resets.
const SHARE: u64 = 131_072;

/// Measures the memory that `count` allocations of the sizes from `size` leave unused, with headers
/// and the last chunk.
fn waste<P: Contender>(count: u64, size: fn(u64, &mut u64) -> u64) -> Figures {
    let before = meter::live();
    let contender = P::make();
    let mut requested = 0;
    let mut random = 1;
    let mut figures = measure(count, || {
        for n in 0..count {
            let size = size(n, &mut random);
            black_box(
                contender.alloc(Layout::from_size_align(size as usize, 1).expect("a small layout")),
            );
            requested += size;
        }
    });
    let waste = 100.0 * (1.0 - requested as f64 / (meter::live() - before) as f64);
    figures.more = Some(("waste_percent", waste));
    drop(contender);
    figures
}

fn mixed(_: u64, random: &mut u64) -> u64 {
    8 + next(random) % 505
}

fn bimodal(_: u64, random: &mut u64) -> u64 {
    if next(random).is_multiple_of(16) { 4096 + next(random) % 8193 } else { 8 + next(random) % 57 }
}

fn large(n: u64, _: &mut u64) -> u64 {
    if n % 3 == 1 { 1_000_000 } else { 10 }
}

/// The runner pins a micro benchmark to one core, but this one needs two.
fn use_all_processors() {
    // SAFETY: an empty set is all zeros, and a set with all bits is reduced to the existing cores.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        libc::sched_setaffinity(0, size_of_val(&all), &raw const all);
    }
}

fn concurrent(iterations: u64) -> Figures {
    use_all_processors();
    let arena = RwLock::new(SyncArena::new());
    let barrier = Barrier::new(3);
    let rounds = iterations / (2 * SHARE);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    barrier.wait();
                    let arena = arena.read().expect("no panic");
                    (0..SHARE).for_each(|_| _ = black_box(arena.alloc_uninit::<[u64; 8]>()));
                    drop(arena);
                    barrier.wait();
                }
            });
        }
        let start = Instant::now();
        let mut figures = measure(iterations, || {
            for _ in 0..rounds {
                barrier.wait();
                barrier.wait();
                arena.write().expect("no panic").reset();
            }
        });
        figures.ns_per_op = start.elapsed().as_nanos() as f64 / iterations as f64;
        figures
    })
}

fn behind<const CHUNKS: usize>(iterations: u64) -> Figures {
    let arena = Arena::with_growth(Growth::fixed(32 * 1024));
    while arena.chunks() <= CHUNKS {
        arena.alloc(0u64);
    }
    measure(iterations, || {
        for n in 0..iterations {
            black_box(arena.alloc(n));
        }
    })
}

fn workload<P: Contender>(iterations: u64) -> Figures {
    let mut contender = P::make();
    measure(2 * iterations, || {
        small(&contender, iterations);
        contender.reset();
        small(&contender, iterations);
    })
}

fn half<P: Contender, const SKIPPED: u64>(iterations: u64) -> Figures {
    let contender = P::make();
    small(&contender, SKIPPED);
    measure(iterations, || small(&contender, iterations))
}

/// Makes `count` allocations like a JSON parser: a few bytes each, which are written at once.
#[inline(never)]
fn small<P: Contender>(contender: &P, count: u64) {
    let mut random = 1;
    for n in 0..count {
        let size = 1 + ((next(&mut random) * 12) >> 32);
        // SAFETY: the layout is not empty and is aligned to 1.
        let layout = unsafe { Layout::from_size_align_unchecked(size as usize, 1) };
        // SAFETY: at least one byte was just allocated.
        unsafe { contender.alloc(layout).write(n as u8) };
    }
}

/// Returns 32 random bits from a linear congruential generator, which takes two instructions and so
/// does not hide the arena.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 32
}
