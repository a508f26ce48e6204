//! Making, cloning and dropping errors.

use std::error::Error as StdError;
use std::fmt;
use std::hint::black_box;
use std::mem;
use std::sync::Arc;

use rookery_bench_meter::{Case, Figures, case, repeat};

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
static STATIC: rookery_error::StaticError<ThirtyTwo> =
    rookery_error::StaticError::new(ThirtyTwo::CONST);

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

/// Each contender needs a function of its own, like the function that fails, so that the compiler
/// knows equally much about the bytes and the use of the error.
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

/// Measures `operation` without dropping its results, which leak.
fn keep<T>(iterations: u64, operation: impl Fn() -> T) -> Figures {
    repeat(iterations, || {
        let made = black_box(operation());
        mem::forget(made);
    })
}

pub fn cases() -> Vec<Case> {
    vec![
        case("new-32", "ours", |n| repeat(n, || rookery_error::Error::new(ThirtyTwo::new()))),
        case("new-32", "throw_error", |n| repeat(n, || throw_error::Error::from(ThirtyTwo::new()))),
        case("new-32", "anyhow", |n| repeat(n, || anyhow::Error::new(ThirtyTwo::new()))),
        case("new-32", "arc", |n| repeat(n, || -> Plain { Arc::new(ThirtyTwo::new()) })),
        case("make-32", "ours", |n| keep(n, || rookery_error::Error::new(ThirtyTwo::new()))),
        case("make-32", "anyhow", |n| keep(n, || anyhow::Error::new(ThirtyTwo::new()))),
        case("make-32", "arc", |n| keep(n, || -> Plain { Arc::new(ThirtyTwo::new()) })),
        case("from-32", "ours", |n| repeat(n, || rookery_error::Error::from(ThirtyTwo::new()))),
        case("from-32", "throw_error", |n| {
            repeat(n, || throw_error::Error::from(ThirtyTwo::new()))
        }),
        case("from-32", "anyhow", |n| repeat(n, || anyhow::Error::from(ThirtyTwo::new()))),
        case("from-32", "arc", |n| {
            repeat(n, || -> Plain {
                Box::<dyn StdError + Send + Sync>::from(ThirtyTwo::new()).into()
            })
        }),
        case("from-text", "ours", |n| repeat(n, || from_text::<rookery_error::Error>(text()))),
        case("from-text", "throw_error", |n| repeat(n, || from_text::<throw_error::Error>(text()))),
        case("from-text", "anyhow", |n| repeat(n, || anyhow_from_text(text()))),
        case("from-text", "arc", |n| repeat(n, || arc_from_text(text()))),
        case("static", "empty", |n| repeat(n, empty)),
        case("static", "ours", |n| repeat(n, message)),
        case("static", "throw_error", |n| repeat(n, || throw_error::Error::from(TEXT))),
        case("static", "anyhow", |n| {
            repeat(n, || anyhow::anyhow!("the request head is too large"))
        }),
        case("static-typed", "empty", |n| repeat(n, empty)),
        case("static-typed", "ours", |n| repeat(n, typed)),
        case("clone", "ours", |n| {
            let error = rookery_error::Error::new(ThirtyTwo::new());
            repeat(n, || black_box(&error).clone())
        }),
        case("clone", "throw_error", |n| {
            let error = throw_error::Error::from(ThirtyTwo::new());
            repeat(n, || black_box(&error).clone())
        }),
        case("clone", "arc", |n| {
            let error: Plain = Arc::new(ThirtyTwo::new());
            repeat(n, || black_box(&error).clone())
        }),
    ]
}
