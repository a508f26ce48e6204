//! The cost of a hook for a poll.
//!
//! Besides the published wrappers this has the two designs of leptos PR 4777, rewritten for a cell
//! of their own: a hook that is cloned into the cell for each poll, and one that is swapped in and
//! out.

use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::hooks::{Ours, Throw};
use rookery_bench_meter::{Case, Figures, case, repeat};

/// The wrapped future. It is not inlined, because the compiler would otherwise remove the unused
/// hook.
struct Inner(u64);

impl Future for Inner {
    type Output = ();

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0 = black_box(self.0 + 1);
        Poll::Pending
    }
}

trait Hook: Send + Sync {}

struct Nothing;

impl Hook for Nothing {}

type Slot = Option<Arc<dyn Hook>>;

thread_local! {
    static SLOT: RefCell<Slot> = const { RefCell::new(None) };
}

/// Puts a hook into the cell, and restores the previous one.
struct Replaced(Slot);

impl Replaced {
    fn by(hook: Slot) -> Replaced {
        Replaced(SLOT.replace(hook))
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        SLOT.set(self.0.take());
    }
}

struct Cloned(Slot, Inner);

impl Future for Cloned {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _replaced = Replaced::by(self.0.clone());
        Pin::new(&mut self.1).poll(cx)
    }
}

/// Swaps a hook with the cell, and swaps back.
struct Exchanged<'a>(&'a mut Slot);

impl<'a> Exchanged<'a> {
    fn with(hook: &'a mut Slot) -> Exchanged<'a> {
        SLOT.with_borrow_mut(|slot| mem::swap(slot, hook));
        Exchanged(hook)
    }
}

impl Drop for Exchanged<'_> {
    fn drop(&mut self) {
        SLOT.with_borrow_mut(|slot| mem::swap(slot, self.0));
    }
}

struct Swapped(Slot, Inner);

impl Future for Swapped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let _exchanged = Exchanged::with(&mut this.0);
        Pin::new(&mut this.1).poll(cx)
    }
}

#[inline(never)]
fn poll_once<F: Future<Output = ()>>(future: Pin<&mut F>, cx: &mut Context<'_>) -> bool {
    future.poll(cx).is_ready()
}

fn polled<F: Future<Output = ()>>(iterations: u64, future: F) -> Figures {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    repeat(iterations, || poll_once(future.as_mut(), &mut cx))
}

/// Returns the cost of the wrapper: the median of nine differences between bare and wrapped polls,
/// which are measured in turns.
fn added<F: Future<Output = ()>>(iterations: u64, wrapped: impl Fn() -> F) -> Figures {
    const TURNS: u64 = 9;
    let each = iterations.div_ceil(TURNS);
    let mut differences: Vec<f64> = (0..TURNS)
        .map(|_| {
            let bare = polled(each, Inner(0));
            let wrapped = polled(each, wrapped());
            assert!(wrapped.allocs_per_op == 0.0, "a poll allocated");
            wrapped.ns_per_op - bare.ns_per_op
        })
        .collect();
    differences.sort_by(f64::total_cmp);
    Figures {
        ns_per_op: differences[differences.len() / 2],
        allocs_per_op: 0.0,
        bytes_per_op: 0.0,
        more: None,
    }
}

fn ours() -> rookery_error::ErrorHookFuture<Inner> {
    rookery_error::ErrorHookFuture::with_hook(Some(Arc::new(Ours::default())), Inner(0))
}

fn throw() -> throw_error::ErrorHookFuture<Inner> {
    let _set = throw_error::set_error_hook(Arc::new(Throw::default()));
    throw_error::ErrorHookFuture::new(Inner(0))
}

fn hook() -> Slot {
    Some(Arc::new(Nothing))
}

pub fn cases() -> Vec<Case> {
    vec![
        case("poll", "bare", |n| polled(n, Inner(0))),
        case("poll", "ours", |n| polled(n, ours())),
        case("poll", "ours-none", |n| {
            polled(n, rookery_error::ErrorHookFuture::with_hook(None, Inner(0)))
        }),
        case("poll", "throw_error", |n| polled(n, throw())),
        case("poll", "cloned", |n| polled(n, Cloned(hook(), Inner(0)))),
        case("poll", "swapped", |n| polled(n, Swapped(hook(), Inner(0)))),
        case("poll-added", "ours", |n| added(n, ours)),
        case("poll-added", "throw_error", |n| added(n, throw)),
    ]
}
