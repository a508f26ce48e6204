//! The memory that the arena reserves and does not use, replayed from seeds, so that the numbers
//! are the same on every machine.

use rookery_arena::{Arena, Growth};

use crate::heap;
use crate::random::Random;

/// Returns the share of the reserved bytes (with headers and the last chunk) that no request has
/// needed.
fn waste(arena: &Arena, requested: usize) -> f64 {
    1.0 - share(requested, arena.capacity())
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

fn replay(arena: &Arena, count: usize, mut size: impl FnMut() -> usize) -> usize {
    let mut requested = 0;
    for _ in 0..count {
        let size = size();
        arena.alloc_layout(std::alloc::Layout::from_size_align(size, 1).unwrap());
        requested += size;
    }
    requested
}

/// Returns the share wasted by `count` allocations of the sizes that `size` draws, the worst of 20
/// seeds.
fn worst(count: usize, size: fn(&mut Random) -> usize) -> f64 {
    (0..20).fold(0.0, |worst: f64, seed| {
        let (arena, mut random) = (Arena::new(), Random(seed));
        let requested = replay(&arena, count, || size(&mut random));
        worst.max(waste(&arena, requested))
    })
}

const COUNT: usize = if cfg!(miri) { 2_000 } else { 100_000 };

#[test]
#[cfg_attr(miri, ignore = "a share of 26 MB")]
fn mixed_sizes_waste_at_most_1_5_percent() {
    let share = worst(COUNT, |random| random.between(8, 512));
    println!("8 to 512 bytes: {:.3} %", share * 100.0);
    assert!(share <= 0.015, "{share}");
}

#[test]
#[cfg_attr(miri, ignore = "a share of 54 MB")]
fn bimodal_sizes_waste_at_most_0_5_percent() {
    let share = worst(COUNT, |random| match random.between(0, 15) {
        0 => random.between(4096, 12_288),
        _ => random.between(8, 64),
    });
    println!("8 to 64 bytes, 1 in 16 of 4 to 12 KiB: {:.3} %", share * 100.0);
    assert!(share <= 0.005, "{share}");
}

#[test]
fn a_large_request_between_two_small_ones_wastes_at_most_0_1_percent() {
    let arena = Arena::new();
    let requested = replay(&arena, 3, {
        let mut sizes = [10, 1_000_000, 10].into_iter();
        move || sizes.next().unwrap()
    });
    println!("10 B, 1 MB, 10 B: {:.3} %", waste(&arena, requested) * 100.0);
    assert!(waste(&arena, requested) <= 0.001);
    // The same, repeatedly.
    let mut large = 0;
    let arena = Arena::new();
    let requested = replay(&arena, 300, || {
        large += 1;
        if large % 3 == 2 { 1_000_000 } else { 10 }
    });
    assert!(waste(&arena, requested) <= 0.001);
}

/// Every size from 1 byte to two chunks, by itself and alternating with others, in each growth.
#[test]
fn no_size_wastes_more_than_an_eighth_and_one_chunk() {
    const MOST: usize = if cfg!(miri) { 30 } else { 4000 };
    let mut worst: f64 = 0.0;
    for growth in [Growth::default(), Growth::new(128, 4096), Growth::fixed(32 * 1024)] {
        let chunk = growth.max();
        let step = if cfg!(miri) { chunk / 3 } else { chunk / 331 };
        for size in (1..2 * chunk).step_by(step) {
            for other in [size, 1, size / 2 + 1, size.div_ceil(9)] {
                let arena = Arena::with_growth(growth);
                let (mut n, mut requested) = (0, 0);
                while requested < 12 * chunk && n < MOST {
                    n += 1;
                    requested += replay(&arena, 1, || if n % 2 == 0 { other } else { size });
                    let unused = arena.capacity() - requested;
                    let bound = arena.capacity() / 8 + chunk;
                    assert!(
                        unused <= bound,
                        "{unused} of {} for {size} and {other}",
                        arena.capacity()
                    );
                    worst = worst.max(share(unused.saturating_sub(chunk), arena.capacity()));
                }
            }
        }
    }
    println!("worst sizes: one chunk and {:.2} %", worst * 100.0);
}

#[test]
#[cfg_attr(miri, ignore = "steady state takes long to reach")]
fn random_sizes_waste_no_more_after_many_resets() {
    let (mut arena, mut random) = (Arena::new(), Random(7));
    for _ in 0..30 {
        arena.reset();
        let requested = replay(&arena, 20_000, || match random.between(0, 99) {
            0 => random.between(1, 200_000),
            _ => random.between(1, 600),
        });
        let bound = arena.high_water().max(requested) / 8 * 9 + 2 * arena.growth().max();
        assert!(arena.capacity() <= bound, "{} for {requested}", arena.capacity());
    }
}

/// The reported workload on a smaller scale: 29 million allocations that grow beyond 180 MB, here 1
/// in 30. (`workload.rs` has all of them.)
#[test]
#[cfg_attr(miri, ignore = "a million allocations")]
fn growth_costs_each_half_the_same_and_the_second_round_nothing() {
    for growth in [Growth::fixed(32 * 1024), Growth::default()] {
        let mut arena = Arena::with_growth(growth);
        let mut random = Random(1);
        let mut half =
            |arena: &Arena| heap::calls(|| _ = replay(arena, 480_000, || random.between(1, 12))).0;
        let (first, second) = (half(&arena), half(&arena));
        assert!(second <= first, "{second} chunks after {first}");
        arena.reset();
        let mut random = Random(1);
        let again = heap::calls(|| _ = replay(&arena, 960_000, || random.between(1, 12)));
        assert_eq!(again, (0, 0));
    }
}
