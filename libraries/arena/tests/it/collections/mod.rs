//! Arrays, strings and buffers that grow in an arena.

#[cfg(feature = "allocator-api2")]
mod allocator;
mod boxes;
mod strings;
mod vecs;

use std::io::{BufRead, ErrorKind, Read, Write};
use std::rc::Rc;

use rookery_arena::collections::{Buffer, String, Vec};
use rookery_arena::{Arena, Growth};

use crate::heap;
use crate::random::Random;

#[test]
fn an_array_grows_in_place_when_it_is_last() {
    const GROWN: u32 = if cfg!(miri) { 300 } else { 2000 };
    let arena = Arena::with_growth(Growth::fixed(32 * 1024));
    let mut array = Vec::new_in(&arena);
    array.push(0u32);
    let start = array.as_ptr();
    (1..GROWN).for_each(|n| array.push(n));
    assert_eq!((array.as_ptr(), arena.chunks()), (start, 1));
    assert!(arena.len() <= 2 * 4 * 2048, "nothing was copied: {}", arena.len());
    assert!(array.iter().enumerate().all(|(at, n)| at == *n as usize));
}

#[test]
fn an_array_that_is_not_last_is_copied() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 3000 };
    let arena = Arena::new();
    let (mut left, mut right) = (Vec::new_in(&arena), Vec::new_in(&arena));
    for n in 0..COUNT {
        left.push(n);
        right.push(!n);
    }
    assert!((0..COUNT).all(|n| left[n as usize] == n && right[n as usize] == !n));
}

#[test]
fn a_large_array_grows_with_its_chunk() {
    const COUNT: u32 = if cfg!(miri) { 2_000 } else { 200_000 };
    let arena = Arena::with_chunk_size(1024);
    let mut array = Vec::new_in(&arena);
    (0..COUNT).for_each(|n| array.push(n));
    // Less than the sum of all doublings, which is 16 bytes per value, because the dedicated chunk
    // grew.
    assert!(arena.capacity() < 7 * COUNT as usize, "{}", arena.capacity());
    assert!(array.iter().enumerate().all(|(at, n)| at == *n as usize));
}

#[test]
fn values_are_dropped_with_the_array_and_not_with_the_arena() {
    let arena = Arena::new();
    let value = Rc::new(());
    let mut array = Vec::new_in(&arena);
    array.extend((0..10).map(|_| Rc::clone(&value)));
    array.truncate(6);
    assert_eq!(Rc::strong_count(&value), 7);
    drop(array);
    assert_eq!(Rc::strong_count(&value), 1);
    let mut array = Vec::new_in(&arena);
    array.push(Rc::clone(&value));
    let left = array.into_slice();
    assert_eq!(Rc::strong_count(&left[0]), 2);
    // SAFETY: not used again. Without this the arena would leak the reference count, which Miri
    // reports.
    unsafe { std::ptr::drop_in_place(left) };
}

#[test]
fn an_array_of_values_without_bytes_needs_no_memory() {
    let arena = Arena::new();
    let mut array = Vec::new_in(&arena);
    (0..1000).for_each(|_| array.push(()));
    assert_eq!((array.len(), arena.capacity()), (1000, 0));
}

#[test]
fn an_array_at_steady_state_allocates_nothing() {
    const COUNT: u32 = if cfg!(miri) { 200 } else { 5000 };
    let mut arena = Arena::new();
    let request = |arena: &mut Arena| {
        let mut array = Vec::new_in(arena);
        array.extend(0..COUNT);
        assert_eq!(array.into_slice().len(), COUNT as usize);
        arena.reset();
    };
    // The first arrays may get a dedicated chunk, which is freed once it was not needed for a
    // while.
    (0..20).for_each(|_| request(&mut arena));
    assert_eq!(heap::calls(|| (0..10).for_each(|_| request(&mut arena))), (0, 0));
}

#[test]
fn a_refused_growth_leaves_the_array_as_it_was() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(4096));
    let mut array = Vec::new_in(&arena);
    while array.try_push(7u64).is_ok() {}
    let len = array.len();
    assert!(len * 8 > 2500, "{len} values");
    assert!(array.iter().all(|value| *value == 7));
    assert_eq!(array.try_reserve(usize::MAX).unwrap_err().requested(), usize::MAX);
    assert_eq!((array.len(), array.last()), (len, Some(&7)));
}

#[test]
fn random_arrays_against_those_of_std() {
    const STEPS: usize = if cfg!(miri) { 300 } else { 20_000 };
    let (arena, mut random) = (Arena::new(), Random(5));
    let mut pairs: std::vec::Vec<(Vec<u16>, std::vec::Vec<u16>)> =
        (0..4).map(|_| (Vec::new_in(&arena), std::vec::Vec::new())).collect();
    for step in 0..STEPS {
        let (ours, std) = &mut pairs[random.between(0, 3)];
        match random.between(0, 7) {
            0..=4 => {
                ours.push(step as u16);
                std.push(step as u16);
            }
            5 | 6 => {
                let more = vec![step as u16; random.between(0, 30)];
                ours.extend_from_slice(&more);
                std.extend_from_slice(&more);
            }
            _ => {
                let len = random.between(0, 4 * std.len());
                ours.truncate(len);
                std.truncate(len);
            }
        }
        assert!(ours.as_slice() == std.as_slice() && ours.capacity() >= ours.len());
    }
}

#[test]
fn a_text_grows_and_stays_utf8() {
    use std::fmt::Write;
    let arena = Arena::new();
    let mut text = String::new_in(&arena);
    text.push_str("\u{e9}\u{1F426} and ");
    write!(text, "{:>5}", 42).unwrap();
    assert_eq!(text, "\u{e9}\u{1F426} and    42");
    let text = text.into_str();
    text.make_ascii_uppercase();
    assert_eq!(text, "\u{e9}\u{1F426} AND    42");
}

#[test]
fn a_text_past_the_limit_is_a_format_error() {
    use std::fmt::Write;
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(512));
    let mut text = String::new_in(&arena);
    assert!(write!(text, "{:1000}", 1).is_err());
}

#[test]
fn a_buffer_is_a_queue_of_bytes() {
    const STEPS: usize = if cfg!(miri) { 100 } else { 5_000 };
    let (arena, mut random) = (Arena::new(), Random(3));
    let (mut buffer, mut model) = (Buffer::new_in(&arena), std::collections::VecDeque::new());
    for step in 0..STEPS {
        let bytes = vec![step as u8; random.between(0, 300)];
        match random.between(0, 3) {
            0 | 1 => {
                assert_eq!(buffer.write(&bytes).unwrap(), bytes.len());
                model.extend(&bytes);
            }
            2 => {
                let mut into = bytes;
                let count = buffer.read(&mut into).unwrap();
                assert!(into[..count].iter().all(|byte| Some(*byte) == model.pop_front()));
            }
            _ => {
                let count = random.between(0, buffer.fill_buf().unwrap().len());
                buffer.consume(count);
                model.drain(..count);
            }
        }
        assert!(buffer.unread().iter().eq(&model));
    }
    let rest: std::vec::Vec<u8> = model.into();
    assert_eq!(buffer.unread(), rest);
}

#[test]
fn a_buffer_that_is_drained_does_not_grow() {
    let arena = Arena::new();
    let mut buffer = Buffer::new_in(&arena);
    for _ in 0..if cfg!(miri) { 20 } else { 1000 } {
        buffer.write_all(&[1; 700]).unwrap();
        buffer.skip(700 - 1);
        buffer.skip(1);
        buffer.write_all(&[2; 300]).unwrap();
        buffer.skip(299);
    }
    assert!(arena.len() < 8192, "{}", arena.len());
}

#[test]
fn a_buffer_past_the_limit_is_an_error_of_io() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(1000));
    let mut buffer = Buffer::new_in(&arena);
    let error = buffer.write_all(&[0; 5000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(buffer.unread().is_empty());
    buffer.write_all(&[1; 50]).unwrap();
    let mut line = std::vec::Vec::new();
    assert_eq!(buffer.read_until(b'\n', &mut line).unwrap(), 50);
}
