//! Arrays against those of the standard library, also when closures and destructors panic.

use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rookery_arena::Arena;
use rookery_arena::collections::{CollectIn, Vec};

use crate::random::Random;

thread_local! {
    /// The number of values that exist.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The number of calls of closures and destructors until one of them panics.
    static CALLS_UNTIL_PANIC: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// Panics if it is this call's turn. A panic during a panic would abort the process.
fn panic_if_due() {
    let left = CALLS_UNTIL_PANIC.get().saturating_sub(1);
    CALLS_UNTIL_PANIC.set(left);
    if left == 0 && !std::thread::panicking() {
        // Without the hook of panics, which would print thousands of messages.
        std::panic::resume_unwind(Box::new(()));
    }
}

/// A value whose copies are counted, and whose destructor panics when it is its turn.
trait Value: Clone + Eq + std::fmt::Debug {
    fn new(number: u32) -> Self;
}

macro_rules! value {
    ($name:ident, $content:ty, $make:expr) => {
        #[derive(PartialEq, Eq, Debug)]
        struct $name($content);

        impl Value for $name {
            fn new(number: u32) -> Self {
                LIVE.set(LIVE.get() + 1);
                $name($make(number))
            }
        }

        impl Clone for $name {
            fn clone(&self) -> Self {
                panic_if_due();
                LIVE.set(LIVE.get() + 1);
                $name(self.0.clone())
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                LIVE.set(LIVE.get() - 1);
                panic_if_due();
            }
        }
    };
}

value!(Number, u32, |number| number);
value!(Heap, Box<u32>, Box::new);
value!(Empty, (), |_| ());

/// Does the same to our array and to that of the standard library. Checks that both return the same
/// or panic, and drop the same number of values. `$due` is the call that panics.
macro_rules! both {
    ($ours:expr, $std:expr, $due:expr, |$vec:ident| $work:expr) => {{
        let count = LIVE.get();
        CALLS_UNTIL_PANIC.set($due);
        let $vec = &mut $ours;
        let left = catch_unwind(AssertUnwindSafe(|| $work)).ok();
        CALLS_UNTIL_PANIC.set(u32::MAX);
        let ours = LIVE.get() - count;

        let count = LIVE.get();
        CALLS_UNTIL_PANIC.set($due);
        let $vec = &mut $std;
        let right = catch_unwind(AssertUnwindSafe(|| $work)).ok();
        CALLS_UNTIL_PANIC.set(u32::MAX);
        assert_eq!(ours, LIVE.get() - count, "{} drops more or fewer", stringify!($work));
        assert_eq!(left, right, "{}", stringify!($work));
    }};
}

fn any_order_of_operations<T: Value>(seed: u64) {
    const STEPS: usize = if cfg!(miri) { 60 } else { 3_000 };
    let (arena, mut random) = (Arena::with_chunk_size(256), Random(seed));
    let (mut ours, mut std) = (Vec::<T>::new_in(&arena), std::vec::Vec::<T>::new());
    for step in 0..STEPS {
        let number = step as u32;
        let len = std.len();
        let at = random.between(0, len);
        let end = random.between(at, len);
        let bits = random.next();
        // In one of two steps, one of the first calls panics.
        let due = if bits % 2 == 0 { u32::MAX } else { random.between(1, 6) as u32 };
        match random.between(0, 6) {
            0..=2 => both!(ours, std, due, |vec| vec.push(T::new(number))),
            3 => both!(ours, std, due, |vec| {
                let mut drain = vec.drain(at..end);
                let ends = (drain.next(), drain.next_back());
                assert_eq!(drain.len(), drain.as_slice().len());
                // Before `ends` is returned: rustc leaks the result of a block in which a later
                // destructor panics (rust-lang/rust#47949).
                drop(drain);
                ends
            }),
            4 => both!(ours, std, due, |vec| vec.drain(..=at.min(len - 1)).count()),
            5 => both!(ours, std, due, |vec| vec.truncate(end)),
            _ => both!(ours, std, due, |vec| {
                let copies = vec[..].to_vec();
                vec.extend(copies);
            }),
        }
        if std.len() > 60 {
            both!(ours, std, u32::MAX, |vec| vec.truncate(5));
        }
        assert_eq!(ours.as_slice(), std.as_slice());
        assert!(ours.capacity() >= ours.len());
    }
    drop((ours, std));
    assert_eq!(LIVE.replace(0), 0, "a value was leaked, or dropped twice");
}

#[test]
fn any_order_of_operations_on_numbers() {
    (0..if cfg!(miri) { 3 } else { 20 }).for_each(any_order_of_operations::<Number>);
}

#[test]
fn any_order_of_operations_on_heap_values() {
    (100..if cfg!(miri) { 103 } else { 120 }).for_each(any_order_of_operations::<Heap>);
}

#[test]
fn any_order_of_operations_on_values_without_bytes() {
    (200..if cfg!(miri) { 203 } else { 220 }).for_each(any_order_of_operations::<Empty>);
}

#[test]
fn a_leaked_drain_leaves_the_values_before_the_range() {
    let arena = Arena::new();
    let mut numbers: Vec<_> = (0..6).collect_in(&arena);
    mem::forget(numbers.drain(2..4));
    assert_eq!(numbers, [0, 1]);
}

#[test]
fn a_range_outside_the_array_panics_and_changes_nothing() {
    let arena = Arena::new();
    let mut numbers: Vec<_> = (0..3).collect_in(&arena);
    let message = |work: &mut dyn FnMut()| {
        let panic = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    for (start, end) in [(2, 4), (3, 2), (5, 5)] {
        let text = message(&mut || _ = numbers.drain(start..end));
        assert!(text.ends_with("is not within 0..3"), "{text}");
    }
    message(&mut || _ = numbers.drain(..=usize::MAX));
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn a_value_that_is_refused_is_dropped_and_changes_nothing() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(512));
    let mut values = Vec::new_in(&arena);
    while values.len() < values.capacity() || values.try_reserve(1).is_ok() {
        values.push(Number::new(7));
    }
    let count = LIVE.get();
    assert!(catch_unwind(AssertUnwindSafe(|| values.push(Number::new(8)))).is_err());
    assert_eq!(LIVE.get(), count);
    assert!(values.iter().all(|value| value.0 == 7));
    drop(values);
    assert_eq!(LIVE.replace(0), 0);
}

#[test]
fn the_first_error_ends_a_collection() {
    let arena = Arena::new();
    let collected: Result<Vec<i32>, i32> = [Ok(1), Err(2), Err(3)].into_iter().collect_in(&arena);
    assert_eq!(collected.unwrap_err(), 2);
    let collected: Result<Vec<i32>, i32> = [Ok(1), Ok(2)].into_iter().collect_in(&arena);
    assert_eq!(collected.unwrap(), [1, 2]);
}
