//! Strings against those of the standard library.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rookery_arena::collections::String;
use rookery_arena::{Arena, format_in};

use crate::random::Random;

/// Characters of one to four bytes.
const CHARACTERS: [char; 6] = ['a', '\0', '\u{e9}', '\u{20ac}', '\u{1F426}', 'z'];

#[test]
fn text_that_grows_is_that_of_the_standard_library() {
    let (arena, mut random) = (Arena::new(), Random(9));
    let (mut ours, mut std) = (String::new_in(&arena), std::string::String::new());
    for _ in 0..if cfg!(miri) { 150 } else { 2_000 } {
        let character = CHARACTERS[random.between(0, 5)];
        match random.between(0, 1) {
            0 => {
                ours.push_str(character.encode_utf8(&mut [0; 4]));
                std.push(character);
            }
            _ => {
                write!(ours, "{character}xy").unwrap();
                write!(std, "{character}xy").unwrap();
            }
        }
        assert_eq!(ours.as_bytes(), std.as_bytes());
    }
}

#[test]
fn formatted_text_past_the_limit_panics_with_the_limit() {
    let mut arena = Arena::new();
    arena.set_allocation_limit(Some(600));
    let format = || format_in!(&arena, "{:1000}", 1).len();
    let panic = catch_unwind(AssertUnwindSafe(format)).unwrap_err();
    let message = panic.downcast_ref::<std::string::String>().unwrap();
    assert!(message.ends_with("the arena may hold at most 600"), "{message}");
}
