//! An error that passes through ten `?`. It is made before the measurement and put back after it,
//! so that only the moves are measured.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use crate::errors::{Plain, ThirtyTwo};
use rookery_bench_meter::{Case, Figures, case, repeat};

/// The error after its way through the frames, and the number of frames that continued (none).
struct Ways<E> {
    error: Cell<Option<E>>,
    passed: Cell<u64>,
}

macro_rules! frames {
    ($contender:ident, $error:ty) => {
        mod $contender {
            use super::*;

            #[inline(never)]
            fn fail(ways: &Ways<$error>) -> Result<(), $error> {
                match ways.error.take() {
                    Some(error) => Err(error),
                    None => Ok(()),
                }
            }

            frames!(@ $error: first <- fail);
            frames!(@ $error: second <- first);
            frames!(@ $error: third <- second);
            frames!(@ $error: fourth <- third);
            frames!(@ $error: fifth <- fourth);
            frames!(@ $error: sixth <- fifth);
            frames!(@ $error: seventh <- sixth);
            frames!(@ $error: eighth <- seventh);
            frames!(@ $error: ninth <- eighth);
            frames!(@ $error: tenth <- ninth);

            pub fn run(error: $error, iterations: u64) -> Figures {
                let ways = Ways { error: Cell::new(Some(error)), passed: Cell::new(0) };
                // `fail` left a `None`, which is forgotten, because checking it for something to
                // drop is not a move.
                let figures = repeat(iterations, || {
                    let _ = ManuallyDrop::new(ways.error.replace(tenth(&ways).err()));
                });
                assert_eq!(ways.passed.get(), 0, "every frame must take the error's way");
                figures
            }
        }
    };
    // The work after the `?` prevents a tail call.
    (@ $error:ty: $frame:ident <- $inner:ident) => {
        #[inline(never)]
        fn $frame(ways: &Ways<$error>) -> Result<(), $error> {
            $inner(ways)?;
            ways.passed.set(ways.passed.get() + 1);
            Ok(())
        }
    };
}

frames!(ours, rookery_error::Error);
frames!(throw, throw_error::Error);
frames!(any, anyhow::Error);
frames!(arc, Plain);
frames!(value, ThirtyTwo);

pub fn cases() -> Vec<Case> {
    let case = |contender, run: fn(u64) -> Figures| case("frames-10", contender, run);
    vec![
        case("ours", |n| ours::run(rookery_error::Error::new(ThirtyTwo::new()), n)),
        case("throw_error", |n| throw::run(ThirtyTwo::new().into(), n)),
        case("anyhow", |n| any::run(ThirtyTwo::new().into(), n)),
        case("arc", |n| arc::run(Arc::new(ThirtyTwo::new()), n)),
        case("value", |n| value::run(ThirtyTwo::new(), n)),
    ]
}
