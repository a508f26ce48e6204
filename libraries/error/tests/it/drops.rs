//! Each error is dropped exactly once, in whatever way it is used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_error::{Context, Error};

/// An error that counts its drops.
#[derive(Debug)]
struct Flag(Arc<AtomicUsize>);

impl Flag {
    fn new() -> (Flag, Arc<AtomicUsize>) {
        let drops = Arc::<AtomicUsize>::default();
        (Flag(Arc::clone(&drops)), drops)
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("flag")
    }
}

impl std::error::Error for Flag {}

/// Calls `with` on an error, and checks that the error is dropped once and not earlier.
fn once(with: impl FnOnce(Flag, &dyn Fn())) {
    let (flag, drops) = Flag::new();
    let alive = || assert_eq!(drops.load(Ordering::Relaxed), 0, "dropped too early");
    with(flag, &alive);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn new() {
    once(|flag, alive| {
        let error = Error::new(flag);
        alive();
        drop(error);
    });
}

#[test]
fn by_the_question_mark() {
    once(|flag, alive| {
        let error = Error::from(flag);
        alive();
        drop(error);
    });
}

#[test]
fn from_a_box() {
    once(|flag, alive| {
        let error = Error::from(Box::new(flag) as Box<dyn std::error::Error + Send + Sync>);
        assert!(error.is::<Flag>());
        alive();
        drop(error);
    });
}

#[test]
fn the_last_clone_drops() {
    once(|flag, alive| {
        let error = Error::new(flag);
        let clones = [error.clone(), error.clone(), error];
        for (dropped, clone) in clones.into_iter().enumerate() {
            alive();
            drop(clone);
            if dropped < 2 {
                alive();
            }
        }
    });
}

#[test]
fn in_layers() {
    once(|flag, alive| {
        let error = Error::new(flag).context("one").with_backtrace().context("two".to_owned());
        let clone = error.clone();
        drop(error);
        alive();
        assert!(clone.is::<Flag>());
        drop(clone);
    });
}

#[test]
fn context_is_dropped_too() {
    once(|flag, alive| {
        let error = Err::<(), _>(Error::from_static(&"inner")).context(flag).expect_err("an error");
        alive();
        drop(error);
    });
    once(|flag, alive| {
        let error = None::<()>.context(flag).expect_err("an error");
        alive();
        drop(error);
    });
}

#[test]
fn context_that_is_not_needed() {
    once(|flag, alive| {
        let result = Ok::<_, Error>(1).with_context(|| flag);
        assert_eq!(result.expect("no error"), 1);
        let _ = alive;
    });
}

#[test]
fn into_a_box_alone_and_shared() {
    once(|flag, alive| {
        let boxed = Error::new(flag).into_boxed();
        assert!(boxed.is::<Flag>());
        alive();
        drop(boxed);
    });
    once(|flag, alive| {
        let error = Error::new(flag);
        let other = error.clone();
        let boxed = error.into_boxed();
        drop(other);
        alive();
        assert!(!boxed.is::<Flag>());
        drop(boxed);
    });
}

#[test]
fn there_and_back_through_a_box() {
    once(|flag, alive| {
        let error = Error::from(Error::new(flag).context("layer").into_boxed());
        alive();
        assert!(error.is::<Flag>());
        drop(error);
    });
}

#[test]
fn into_an_arc() {
    once(|flag, alive| {
        let arc = Error::new(flag).into_inner();
        let clone = Arc::clone(&arc);
        drop(arc);
        alive();
        drop(clone);
    });
}

#[test]
fn on_another_thread() {
    once(|flag, alive| {
        let error = Error::new(flag);
        let clone = error.clone();
        let thread = std::thread::spawn(move || drop(clone));
        thread.join().expect("dropping does not panic");
        alive();
        drop(error);
    });
}

#[test]
fn a_panic_in_the_destructor_of_an_error() {
    #[derive(Debug)]
    struct Fuse(Flag);
    impl Drop for Fuse {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("fuse"));
        }
    }
    impl fmt::Display for Fuse {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
    impl std::error::Error for Fuse {}
    once(|flag, alive| {
        let error = Error::new(Fuse(flag));
        alive();
        std::panic::catch_unwind(|| drop(error)).expect_err("it panics");
    });
}
