//! What is measured.

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

use rookery_arena::{Arena, Growth, SyncArena};

use crate::heap;
use crate::peers::{BumpScope, Bumpalo, Ours, OursFixed, Peer};

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) peers: &'static [(&'static str, fn(u64) -> Outcome)],
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "const-layout",
        what: "64 bytes aligned to 8, known to the compiler; a reset every 1,024 allocations",
        peers: &[
            ("ours", constant::<Ours>),
            ("bumpalo", constant::<Bumpalo>),
            ("bump-scope", constant::<BumpScope>),
        ],
    },
    Scenario {
        name: "dynamic-layout",
        what: "1 to 64 bytes aligned to 1, 2, 4, 8 or 16, in an order that does not repeat; a reset every 1,024 allocations",
        peers: &[
            ("ours", dynamic::<Ours>),
            ("bumpalo", dynamic::<Bumpalo>),
            ("bump-scope", dynamic::<BumpScope>),
        ],
    },
    Scenario {
        name: "full-chunks",
        what: "8 bytes, with that many full chunks of 32 KiB before the cursor",
        peers: &[("ours-10", behind::<10>), ("ours-100", behind::<100>), ("ours-1000", behind::<1000>)],
    },
    Scenario {
        name: "workload",
        what: "1 to 12 bytes (188 MB for 29 million), twice with a reset between",
        peers: &[
            ("ours", workload::<Ours>),
            ("ours-32k", workload::<OursFixed>),
            ("bumpalo", workload::<Bumpalo>),
            ("bump-scope", workload::<BumpScope>),
        ],
    },
    Scenario {
        name: "workload-before",
        what: "the workload's first part, small enough for the go-arena before the cursor",
        peers: &[("ours", workload::<Ours>), ("bumpalo", workload::<Bumpalo>)],
    },
    Scenario {
        name: "workload-halves",
        what: "as workload: the first allocations, or those after the first 14.5 million",
        peers: &[
            ("ours-first", half::<Ours, 0>),
            ("ours-second", half::<Ours, 14_500_000>),
            ("ours-32k-first", half::<OursFixed, 0>),
            ("ours-32k-second", half::<OursFixed, 14_500_000>),
        ],
    },
    Scenario {
        name: "dynamic-layout-repeated",
        what: "as dynamic-layout, but the same 1,024 layouts over and over, which branch prediction learns by heart",
        peers: &[
            ("ours", repeated::<Ours>),
            ("bumpalo", repeated::<Bumpalo>),
            ("bump-scope", repeated::<BumpScope>),
        ],
    },
    Scenario {
        name: "concurrent",
        what: "64 bytes from each of two threads, then a reset; wall time",
        peers: &[("ours", concurrent)],
    },
    Scenario {
        name: "waste-mixed",
        what: "8 to 512 bytes: the share of what was asked from the allocator that no request asked for",
        peers: &[
            ("ours", |count| waste::<Ours>(count, mixed)),
            ("bumpalo", |count| waste::<Bumpalo>(count, mixed)),
            ("bump-scope", |count| waste::<BumpScope>(count, mixed)),
        ],
    },
    Scenario {
        name: "waste-bimodal",
        what: "8 to 64 bytes and 1 in 16 of 4 to 12 KiB: the same share",
        peers: &[
            ("ours", |count| waste::<Ours>(count, bimodal)),
            ("bumpalo", |count| waste::<Bumpalo>(count, bimodal)),
            ("bump-scope", |count| waste::<BumpScope>(count, bimodal)),
        ],
    },
    Scenario {
        name: "waste-large",
        what: "10 bytes, 1 MB, 10 bytes (3 iterations): the same share",
        peers: &[
            ("ours", |count| waste::<Ours>(count, large)),
            ("bumpalo", |count| waste::<Bumpalo>(count, large)),
            ("bump-scope", |count| waste::<BumpScope>(count, large)),
        ],
    },
];

/// The cost of the measured part.
pub(crate) struct Outcome {
    nanoseconds: u128,
    calls: usize,
    bytes: usize,
    /// Measured operations per iteration.
    rounds: u64,
    waste_percent: Option<f64>,
}

impl Outcome {
    pub(crate) fn json(&self, scenario: &str, peer: &str, iterations: u64) -> String {
        let per_op = |total: f64| total / (iterations * self.rounds) as f64;
        format!(
            concat!(
                r#"{{"scenario":"{}","peer":"{}","iterations":{},"ns_per_op":{:.3},"allocs_per_op":{:.7},"#,
                r#""bytes_per_op":{:.4},"peak_bytes":{},"resident_bytes":{}{}}}"#
            ),
            scenario,
            peer,
            iterations,
            per_op(self.nanoseconds as f64),
            per_op(self.calls as f64),
            per_op(self.bytes as f64),
            heap::peak(),
            resident_peak(),
            self.waste_percent.map_or(String::new(), |share| format!(r#","waste_percent":{share:.4}"#)),
        )
    }
}

/// The most memory the process had, from the kernel.
fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).map_or(0, |kib: u64| kib * 1024)
}

/// Processor time of this process. One thread's work is measured by it, because other processes must not count.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures `work`, which does `rounds` operations per iteration.
fn measure(rounds: u64, work: impl FnOnce()) -> Outcome {
    let before = heap::totals();
    let start = processor_time();
    work();
    let nanoseconds = (processor_time() - start).as_nanos();
    let after = heap::totals();
    Outcome { nanoseconds, calls: after.0 - before.0, bytes: after.1 - before.1, rounds, waste_percent: None }
}

/// Allocations between two resets.
const PERIOD: u64 = 1024;

fn constant<P: Peer>(iterations: u64) -> Outcome {
    let mut peer = P::make();
    measure(1, || {
        for _ in 0..iterations / PERIOD {
            for _ in 0..PERIOD {
                black_box(peer.alloc_block());
            }
            peer.reset();
        }
    })
}

fn dynamic<P: Peer>(iterations: u64) -> Outcome {
    let mut random = 1;
    let mut peer = P::make();
    measure(1, || {
        for _ in 0..iterations / PERIOD {
            for _ in 0..PERIOD {
                let bits = next(&mut random) as usize;
                let (size, align) = (1 + bits % 64, ALIGN[bits >> 6 & 7]);
                // SAFETY: a power of two, and a size far from `isize::MAX`.
                let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
                black_box(peer.alloc(layout));
            }
            peer.reset();
        }
    })
}

/// Alignments as programs ask for them: mostly words and bytes.
const ALIGN: [usize; 8] = [1, 1, 2, 4, 8, 8, 8, 16];

fn repeated<P: Peer>(iterations: u64) -> Outcome {
    let mut random = 1;
    let layouts: Vec<Layout> = (0..PERIOD)
        .map(|_| {
            let bits = next(&mut random) as usize;
            Layout::from_size_align(1 + bits % 64, ALIGN[bits >> 6 & 7]).expect("a small layout")
        })
        .collect();
    let mut peer = P::make();
    measure(1, || {
        for _ in 0..iterations / PERIOD {
            for layout in black_box(&layouts) {
                black_box(peer.alloc(*layout));
            }
            peer.reset();
        }
    })
}

/// Allocations of each thread between two resets.
const SHARE: u64 = 131_072;

/// What `count` allocations of the sizes that `size` draws leave unused, headers and the last chunk included.
fn waste<P: Peer>(count: u64, size: fn(u64, &mut u64) -> u64) -> Outcome {
    let before = heap::live();
    let peer = P::make();
    let mut requested = 0;
    let mut random = 1;
    let mut outcome = measure(1, || {
        for n in 0..count {
            let size = size(n, &mut random);
            black_box(peer.alloc(Layout::from_size_align(size as usize, 1).expect("a small layout")));
            requested += size;
        }
    });
    outcome.waste_percent = Some(100.0 * (1.0 - requested as f64 / (heap::live() - before) as f64));
    drop(peer);
    outcome
}

fn mixed(_: u64, random: &mut u64) -> u64 {
    8 + next(random) % 505
}

fn bimodal(_: u64, random: &mut u64) -> u64 {
    if next(random) % 16 == 0 { 4096 + next(random) % 8193 } else { 8 + next(random) % 57 }
}

fn large(n: u64, _: &mut u64) -> u64 {
    if n % 3 == 1 { 1_000_000 } else { 10 }
}

/// The runner pins a micro benchmark to one core. This one needs two.
fn use_all_processors() {
    // SAFETY: an empty set is all zeros; a set with every bit is cut down to what there is.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        (0..libc::CPU_SETSIZE as usize).for_each(|cpu| libc::CPU_SET(cpu, &mut all));
        libc::sched_setaffinity(0, size_of_val(&all), &raw const all);
    }
}

fn concurrent(iterations: u64) -> Outcome {
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
        let mut outcome = measure(1, || {
            for _ in 0..rounds {
                barrier.wait();
                barrier.wait();
                arena.write().expect("no panic").reset();
            }
        });
        outcome.nanoseconds = start.elapsed().as_nanos();
        outcome
    })
}

fn behind<const CHUNKS: usize>(iterations: u64) -> Outcome {
    let arena = Arena::with_growth(Growth::fixed(32 * 1024));
    while arena.chunks() <= CHUNKS {
        arena.alloc(0u64);
    }
    measure(1, || {
        for n in 0..iterations {
            black_box(arena.alloc(n));
        }
    })
}

fn workload<P: Peer>(iterations: u64) -> Outcome {
    let mut peer = P::make();
    measure(2, || {
        small(&peer, iterations);
        peer.reset();
        small(&peer, iterations);
    })
}

fn half<P: Peer, const SKIPPED: u64>(iterations: u64) -> Outcome {
    let peer = P::make();
    small(&peer, SKIPPED);
    measure(1, || small(&peer, iterations))
}

/// `count` allocations as a JSON parser makes them: few bytes each, written to at once.
#[inline(never)]
fn small<P: Peer>(peer: &P, count: u64) {
    let mut random = 1;
    for n in 0..count {
        let size = 1 + (next(&mut random) * 12 >> 32);
        // SAFETY: not empty and aligned to 1.
        let layout = unsafe { Layout::from_size_align_unchecked(size as usize, 1) };
        // SAFETY: at least one byte was just allocated.
        unsafe { peer.alloc(layout).write(n as u8) };
    }
}

/// 32 random bits from a linear congruence: two instructions, so that they do not hide the arena.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 32
}
