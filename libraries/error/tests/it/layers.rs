//! Errors with very many layers, on a stack that recursion over them would overflow.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_error::{Error, StaticError, error};

use crate::Failure;

const LAYERS: usize = if cfg!(miri) { 300 } else { 300_000 };

static CAUSE: StaticError<Failure> = StaticError::new(Failure("static cause", None));

/// Runs `work` on a thread with 128 KiB of stack.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(work);
    thread.expect("a thread starts").join().expect("its assertions hold");
}

fn nested(cause: Error) -> Error {
    (0..LAYERS).fold(cause, |error, _| error.context("retry"))
}

#[test]
fn many_layers_drop_without_recursion() {
    on_a_small_stack(|| {
        drop(nested(Error::new(Failure("cause", None))));
        drop(nested(Error::from_static_error(&CAUSE)));
        drop(nested(error!("formatted {}", 1)).with_backtrace());
        drop(nested(Error::from(std::io::Error::other("boxed")).with_backtrace()));
        drop(nested(Error::from_static(&"text")).into_boxed());
        drop(nested(Error::from_static(&"text")).into_inner());
    });
}

/// Keeps a clone of each thousandth layer, so that the layers inside it stay alive.
#[test]
fn shared_layers_are_kept() {
    on_a_small_stack(|| {
        let mut error = error!("cause {}", 1);
        let mut held = Vec::new();
        for layer in 0..LAYERS {
            error = error.context("retry");
            if layer % (LAYERS / 100) == 0 {
                held.push((error.clone(), layer + 2));
            }
        }
        drop(error);
        while let Some((error, levels)) = held.pop() {
            assert_eq!(error.chain().count(), levels);
        }
    });
}

#[test]
fn threads_that_share_layers_drop_each_once() {
    let drops = Arc::<AtomicUsize>::default();
    let (mut error, mut clones) = (Error::from_static(&"cause"), Vec::new());
    for _ in 0..LAYERS / 10 {
        error = error.context(Counted(Arc::clone(&drops)));
        clones.push(error.clone());
    }
    std::thread::scope(|scope| {
        scope.spawn(move || drop(error));
        scope.spawn(move || clones.into_iter().rev().for_each(drop));
    });
    assert_eq!(drops.load(Ordering::Relaxed), LAYERS / 10);
}

#[test]
fn a_context_whose_destructor_panics_does_not_leak_the_rest() {
    let drops = Arc::<AtomicUsize>::default();
    let counted = || Counted(Arc::clone(&drops));
    for fuse in [0, 1, 3] {
        drops.store(0, Ordering::Relaxed);
        let mut error = error!("cause {}", 1);
        for layer in 0..5 {
            error = error.context(counted());
            if layer == fuse {
                error = error.context(Fuse);
            }
        }
        std::panic::catch_unwind(|| drop(error)).expect_err("it panics");
        assert_eq!(drops.load(Ordering::Relaxed), 5);
    }
}

#[test]
fn many_layers_are_shown_and_searched_without_recursion() {
    on_a_small_stack(|| {
        let error = nested(Error::new(Failure("cause", None)).with_backtrace());
        assert_eq!(error.to_string(), "retry");
        let shown = format!("{error:#}");
        assert!(shown.len() == LAYERS * "retry: ".len() + 5 && shown.ends_with("retry: cause"));
        // Miri has no working directory, relative to which a backtrace is printed.
        assert!(cfg!(miri) || format!("{error:?}").contains(": cause"));
        let structure = format!("{error:#?}");
        assert!(structure.matches("retry").count() == LAYERS && structure.contains("cause"));
        assert_eq!(error.chain().count(), LAYERS + 1);
        assert!(error.is::<Failure>() && !error.is::<std::io::Error>());
        assert!(error.backtrace().is_some() && error.source().is_some());
        let boxed = error.into_boxed();
        assert_eq!(format!("{boxed:#}").len(), shown.len());
        assert_eq!(Error::from(boxed).chain().count(), LAYERS + 1);
    });
}

#[test]
#[cfg_attr(miri, ignore = "each capture takes Miri long")]
fn the_last_of_many_backtraces_is_kept() {
    on_a_small_stack(|| {
        let mut error = Error::new(Failure("cause", None));
        for _ in 0..5_000 {
            error = error.with_backtrace();
        }
        assert_eq!(format!("{error:#}"), "cause");
        assert!(error.is::<Failure>() && error.backtrace().is_some());
    });
}

/// A context that counts its drops.
struct Counted(Arc<AtomicUsize>);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counted")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A context that panics when it is dropped.
struct Fuse;

impl fmt::Display for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fuse")
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("fuse"));
    }
}
