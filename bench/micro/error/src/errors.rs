//! Making, cloning and dropping errors.

use std::error::Error as StdError;
use std::fmt;
use std::hint::black_box;
use std::mem;
use std::sync::Arc;

use crate::meter::{Case, Figures, repeat};

/// An error of 32 bytes, as in leptos PR 4777.
#[derive(Debug, Clone, Copy)]
pub struct ThirtyTwo(#[expect(dead_code, reason = "only its size counts")] [u64; 4]);

impl ThirtyTwo {
    pub const CONST: ThirtyTwo = ThirtyTwo([7; 4]);

    pub fn new() -> ThirtyTwo {
        black_box(ThirtyTwo([1, 2, 3, 4]))
    }
}

impl fmt::Display for ThirtyTwo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("thirty-two bytes")
    }
}

impl StdError for ThirtyTwo {}

pub type Plain = Arc<dyn StdError + Send + Sync>;

const TEXT: &str = "the request head is too large";
static STATIC: rookery_error::StaticError<ThirtyTwo> = rookery_error::StaticError::new(ThirtyTwo::CONST);

fn text() -> &'static str {
    black_box(TEXT)
}

#[inline(never)]
fn empty() {}

#[inline(never)]
fn message() -> rookery_error::Error {
    rookery_error::Error::from_static(&TEXT)
}

#[inline(never)]
fn typed() -> rookery_error::Error {
    rookery_error::Error::from_static_error(&STATIC)
}

/// A function of its own for each peer, as the function is that fails: what the compiler knows of the bytes and of what
/// becomes of the error is the same for all.
#[inline(never)]
fn from_text<E: for<'a> From<&'a str>>(text: &str) -> E {
    E::from(text)
}

#[inline(never)]
fn anyhow_from_text(text: &str) -> anyhow::Error {
    anyhow::Error::msg(text.to_owned())
}

#[inline(never)]
fn arc_from_text(text: &str) -> Plain {
    Box::<dyn StdError + Send + Sync>::from(text).into()
}

/// `operation` without the drop of what it made, which leaks.
fn keep<T>(iterations: u64, operation: impl Fn() -> T) -> Figures {
    repeat(iterations, || {
        let made = black_box(operation());
        mem::forget(made);
    })
}

pub fn cases() -> Vec<Case> {
    let case = |scenario, peer, what, run| Case { scenario, peer, what, run };
    vec![
        case("new-32", "ours", "Error::new of 32 bytes, and drop", |n| {
            repeat(n, || rookery_error::Error::new(ThirtyTwo::new()))
        }),
        case("new-32", "throw_error", "From, its only constructor, and drop", |n| {
            repeat(n, || throw_error::Error::from(ThirtyTwo::new()))
        }),
        case("new-32", "anyhow", "Error::new of 32 bytes, and drop", |n| {
            repeat(n, || anyhow::Error::new(ThirtyTwo::new()))
        }),
        case("new-32", "arc", "Arc::new as Arc<dyn Error + Send + Sync>, and drop", |n| {
            repeat(n, || -> Plain { Arc::new(ThirtyTwo::new()) })
        }),
        case("make-32", "ours", "Error::new of 32 bytes, leaked", |n| {
            keep(n, || rookery_error::Error::new(ThirtyTwo::new()))
        }),
        case("make-32", "anyhow", "Error::new of 32 bytes, leaked", |n| {
            keep(n, || anyhow::Error::new(ThirtyTwo::new()))
        }),
        case("make-32", "arc", "Arc::new as Arc<dyn Error + Send + Sync>, leaked", |n| {
            keep(n, || -> Plain { Arc::new(ThirtyTwo::new()) })
        }),
        case("from-32", "ours", "From, which the question mark uses, and drop", |n| {
            repeat(n, || rookery_error::Error::from(ThirtyTwo::new()))
        }),
        case("from-32", "throw_error", "From, and drop", |n| {
            repeat(n, || throw_error::Error::from(ThirtyTwo::new()))
        }),
        case("from-32", "anyhow", "From, and drop", |n| repeat(n, || anyhow::Error::from(ThirtyTwo::new()))),
        case("from-32", "arc", "by way of a box, and drop", |n| {
            repeat(n, || -> Plain { Box::<dyn StdError + Send + Sync>::from(ThirtyTwo::new()).into() })
        }),
        case("from-text", "ours", "From of a &str of 29 bytes, and drop", |n| {
            repeat(n, || from_text::<rookery_error::Error>(text()))
        }),
        case("from-text", "throw_error", "From of the same, and drop", |n| {
            repeat(n, || from_text::<throw_error::Error>(text()))
        }),
        case("from-text", "anyhow", "Error::msg of the same as a String, and drop", |n| {
            repeat(n, || anyhow_from_text(text()))
        }),
        case("from-text", "arc", "From by way of a box, and drop", |n| repeat(n, || arc_from_text(text()))),
        case("static", "empty", "a call that does nothing", |n| repeat(n, empty)),
        case("static", "ours", "a call that returns Error::from_static, and drop", |n| repeat(n, message)),
        case("static", "throw_error", "From of a literal, and drop", |n| {
            repeat(n, || throw_error::Error::from(TEXT))
        }),
        case("static", "anyhow", "anyhow! of a literal, and drop", |n| {
            repeat(n, || anyhow::anyhow!("the request head is too large"))
        }),
        case("static-typed", "empty", "a call that does nothing", |n| repeat(n, empty)),
        case("static-typed", "ours", "a call that returns Error::from_static_error, and drop", |n| {
            repeat(n, typed)
        }),
        case("clone", "ours", "clone and drop of an error on the heap", |n| {
            let error = rookery_error::Error::new(ThirtyTwo::new());
            repeat(n, || black_box(&error).clone())
        }),
        case("clone", "throw_error", "clone and drop", |n| {
            let error = throw_error::Error::from(ThirtyTwo::new());
            repeat(n, || black_box(&error).clone())
        }),
        case("clone", "arc", "clone and drop", |n| {
            let error: Plain = Arc::new(ThirtyTwo::new());
            repeat(n, || black_box(&error).clone())
        }),
    ]
}
