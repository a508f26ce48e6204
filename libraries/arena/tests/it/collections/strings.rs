//! Strings against those of the standard library.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rookery_arena::collections::{CollectIn, String};
use rookery_arena::{Arena, format_in};

use crate::random::Random;

/// Characters of one to four bytes.
const CHARACTERS: [char; 6] = ['a', '\0', '\u{e9}', '\u{20ac}', '\u{1F426}', 'z'];

#[test]
fn any_order_of_operations_on_text() {
    const STEPS: usize = if cfg!(miri) { 150 } else { 20_000 };
    let (arena, mut random) = (Arena::new(), Random(9));
    let (mut ours, mut std) = (String::new_in(&arena), std::string::String::new());
    for _ in 0..STEPS {
        let character = CHARACTERS[random.between(0, 5)];
        let mut boundary = |low: usize| {
            let mut at = random.between(low, std.len());
            while !std.is_char_boundary(at) {
                at += 1;
            }
            at
        };
        let at = boundary(0);
        let end = boundary(at);
        match random.between(0, 7) {
            0 => (ours.push(character), std.push(character)).0,
            1 => (ours.insert(at, character), std.insert(at, character)).0,
            2 => (ours.insert_str(at, "\u{e9}xy"), std.insert_str(at, "\u{e9}xy")).0,
            3 if at < std.len() => assert_eq!(ours.remove(at), std.remove(at)),
            4 => {
                ours.retain(|other| other != character);
                std.retain(|other| other != character);
            }
            5 => {
                let (mut left, mut right) = (ours.drain(at..end), std.drain(at..end));
                assert_eq!((left.next(), left.next_back()), (right.next(), right.next_back()));
                assert_eq!(left.as_str(), right.as_str());
            }
            6 if std.len() > 40 => (ours.truncate(at), std.truncate(at)).0,
            7 => {
                ours = ours.clone();
                ours.extend([character, 'x']);
                std.extend([character, 'x']);
            }
            _ => {}
        }
        assert_eq!(ours.as_bytes(), std.as_bytes());
    }
}

#[test]
fn a_panic_in_retain_keeps_the_text_that_was_not_seen() {
    let arena = Arena::new();
    let mut text: String = ['\u{e9}', 'a', '\u{20ac}', 'b'].into_iter().collect_in(&arena);
    let keep = |character| {
        assert_ne!(character, '\u{20ac}');
        character == 'a'
    };
    assert!(catch_unwind(AssertUnwindSafe(|| text.retain(keep))).is_err());
    assert_eq!(text, "a\u{20ac}b");
}

#[test]
fn an_index_within_a_character_panics_and_changes_nothing() {
    let arena = Arena::new();
    let mut text = format_in!(&arena, "{}", "a\u{e9}");
    let mut panics = |work: fn(&mut String<'_>)| {
        assert!(catch_unwind(AssertUnwindSafe(|| work(&mut text))).is_err());
        assert_eq!(text, "a\u{e9}");
    };
    panics(|text| text.truncate(2));
    panics(|text| text.insert(2, 'x'));
    panics(|text| _ = text.remove(2));
    panics(|text| _ = text.remove(3));
    panics(|text| _ = text.drain(..2));
    panics(|text| _ = text.drain(2..));
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
