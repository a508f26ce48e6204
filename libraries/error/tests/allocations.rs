//! Counts the allocations of each constructor and each poll. It is a single test, because the
//! counter belongs to the process.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rookery_error::{
    Context as _, Delivery, Error, ErrorHook, ErrorHookFuture, Kind, Reports, StaticError, error,
    set_hook, throw, with_hook,
};
use rookery_test_support::allocator::{CountingAllocator, process};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns the number of allocations of `run`, and their bytes.
fn cost<T>(run: impl FnOnce() -> T) -> (usize, usize) {
    let before = (process::allocations(), process::requested_bytes());
    black_box(run());
    let allocations = process::allocations() - before.0;
    (usize::try_from(allocations).unwrap(), process::requested_bytes() - before.1)
}

fn allocations<T>(run: impl FnOnce() -> T) -> usize {
    cost(run).0
}

#[derive(Debug, Clone, Copy)]
struct ThirtyTwo([u64; 4]);

impl fmt::Display for ThirtyTwo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[0].fmt(f)
    }
}

impl StdError for ThirtyTwo {}

static STATIC: StaticError<ThirtyTwo> = StaticError::new(ThirtyTwo([0; 4]));

#[derive(Clone, Copy)]
struct All;

impl Kind for All {
    const COUNT: usize = 1;
    fn of(_: &Error) -> All {
        All
    }
    fn index(self) -> usize {
        0
    }
}

/// Runs without the test harness (`harness = false`), whose threads allocate at any time.
fn main() {
    constructors();
    conversions_back();
    hooks();
    reports();
    println!("allocations: ok");
}

fn constructors() {
    let error = ThirtyTwo([1; 4]);
    assert_eq!(cost(|| Error::new(error)), (1, 32 + 2 * size_of::<usize>()));
    assert_eq!(allocations(|| Error::from_static(&"static")), 0);
    assert_eq!(allocations(|| Error::from_static_error(&STATIC)), 0);
    assert_eq!(allocations(|| error!("plain literal")), 0);

    let text = String::from("a text that is not known before");
    assert_eq!(cost(|| Error::from(text.as_str())), (1, 4 * size_of::<usize>() + text.len()));
    assert_eq!(allocations(|| Error::from(Cow::Borrowed(text.as_str()))), 1);
    let owned = text.clone();
    assert_eq!(allocations(|| Error::from(owned)), 1);
    assert_eq!(allocations(|| error!("formatted: {text} {}", 1)), 1);
    let most = "l".repeat(256);
    assert_eq!(allocations(|| error!("{most}")), 1);
    long_messages();

    let boxed: Box<dyn StdError + Send + Sync> = Box::new(error);
    assert_eq!(cost(|| Error::from(boxed)), (1, 4 * size_of::<usize>()));
    assert_eq!(
        allocations(|| Error::from(error)),
        2,
        "the box of the conversion, and the one around it"
    );

    let one = Error::new(error);
    assert_eq!(allocations(|| one.clone()), 0);
    assert_eq!(allocations(|| Error::from_static(&"static").clone()), 0);
    assert_eq!(allocations(|| one.clone().context("a literal")), 1);
    assert_eq!(allocations(|| one.downcast_ref::<ThirtyTwo>().is_some()), 0);
    assert_eq!(allocations(|| one.chain().count()), 0);
    assert_eq!(allocations(|| Ok::<_, Error>(1).with_context(|| format!("never {text}"))), 0);

    // Unset, because the machine may request backtraces in its environment.
    // SAFETY: this program has one thread.
    unsafe { std::env::set_var("RUST_BACKTRACE", "1") };
    assert_eq!(allocations(|| Error::new(error)), 1);
    assert_eq!(allocations(|| error!("plain literal")), 0);
}

/// Above 256 bytes: the error, the string, and a reallocation whenever the string doubles.
fn long_messages() {
    let lengths: &[usize] = if cfg!(miri) { &[257] } else { &[257, 300, 5_000, 100_000] };
    for &length in lengths {
        let long = "l".repeat(length);
        assert_eq!(allocations(|| error!("{long}")), 2, "{length} bytes in one piece");
        for piece in [1, 10, 200, 256, 257] {
            let piece = &long[..piece.min(length)];
            let pieces = Repeated(piece, length.div_ceil(piece.len()));
            let doublings = (length.div_ceil(256)).next_power_of_two().ilog2() as usize;
            let counted = allocations(|| error!("{pieces}"));
            assert!(
                (2..=2 + doublings).contains(&counted),
                "{counted} for {length} by {}",
                piece.len()
            );
        }
    }
}

/// A text that is written in parts: the part and the number of repetitions.
struct Repeated<'a>(&'a str, usize);

impl fmt::Display for Repeated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.1).try_for_each(|_| f.write_str(self.0))
    }
}

fn conversions_back() {
    let error = ThirtyTwo([2; 4]);
    let alone = Error::new(error);
    assert_eq!(cost(|| alone.into_boxed()), (1, 32));
    let boxed: Box<dyn StdError + Send + Sync> = Box::new(error);
    let kept = Error::from(boxed);
    assert_eq!(allocations(|| kept.into_boxed()), 0);
    let shared = Error::new(error);
    let boxed = shared.clone().into_boxed();
    assert_eq!(allocations(|| Error::from(boxed)), 0, "the handle comes out of its box");
    let arc = shared.clone().into_inner();
    assert_eq!(allocations(|| shared.into_inner()), 1, "a wrapper");
    assert_eq!(allocations(|| Error::from(arc)), 0, "the handle comes out of its arc");
    assert_eq!(allocations(|| Error::new(error).into_inner()), 2, "one to make it");
    let object: Arc<dyn StdError + Send + Sync> = Arc::new(error);
    let kept = Error::from(Arc::clone(&object));
    assert_eq!(cost(|| Error::from(object)), (1, 4 * size_of::<usize>()));
    assert_eq!(allocations(|| kept.into_inner()), 0);
}

struct Deaf;

impl ErrorHook for Deaf {
    fn throw(&self, _: Error) -> rookery_error::ErrorId {
        1.into()
    }
    fn clear(&self, _: &rookery_error::ErrorId) {}
}

fn hooks() {
    let hook: Arc<dyn ErrorHook> = Arc::new(Deaf);
    let mut polls = 0;
    let inner = poll_fn(move |_| {
        polls += 1;
        if polls % 2 == 0 {
            throw(Error::from_static(&"static"));
        }
        if polls == 1000 { Poll::Ready(()) } else { Poll::Pending }
    });
    let mut future = pin!(ErrorHookFuture::with_hook(Some(hook.clone()), inner));
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(allocations(|| while future.as_mut().poll(&mut cx).is_pending() {}), 0);
    assert_eq!(allocations(|| with_hook(&hook, || throw(Error::from_static(&"static")))), 0);
    assert_eq!(allocations(|| ErrorHookFuture::new(())), 0);
    assert_eq!(allocations(|| set_hook(hook.clone())), 1);
    assert_eq!(allocations(|| throw("not even converted")), 0);
}

/// Does what a server does for each rejection, which allocates nothing however long it runs.
fn reports() {
    let reports = Arc::new(Reports::<All>::new());
    reports.set_delivery(Delivery::Queue);
    assert_eq!(allocations(|| reports.hook()), 1);
    let hook = reports.hook();
    let requests = || {
        for request in 0..1000 {
            hook.begin(request);
            hook.throw(Error::from_static_error(&STATIC));
            if request % 3 == 0 {
                while reports.take().is_some() {}
            }
        }
    };
    assert_eq!(allocations(requests), 0);
    let overflow = || {
        for _ in 0..1000 {
            hook.throw(Error::from_static_error(&STATIC));
        }
    };
    assert_eq!(allocations(overflow), 0);
    assert!(reports.lost() > 700);
    let handler = String::from("handler failed: no such file");
    assert_eq!(allocations(|| hook.throw(Error::from(handler.as_str()))), 1);
}
