//! A request that is turned down: the poll of its future throws one error to the hook of that request.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use crate::meter::{Case, Figures, repeat};

/// 32 bytes, as the error of leptos PR 4777 has.
#[derive(Debug)]
struct Refused([u64; 4]);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {:?}", self.0)
    }
}

impl StdError for Refused {}

#[derive(Default)]
struct Count(AtomicU64);

impl rookery_error::ErrorHook for Count {
    fn throw(&self, _: rookery_error::Error) -> rookery_error::ErrorId {
        (self.0.fetch_add(1, Ordering::Relaxed) as usize).into()
    }

    fn clear(&self, _: &rookery_error::ErrorId) {}
}

struct Throws;

impl Future for Throws {
    type Output = ();

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        rookery_error::throw(rookery_error::Error::new(Refused([1, 2, 3, 4])));
        Poll::Pending
    }
}

/// The shape before leptos PR 4777, written anew: the error boxed and then moved into an `Arc`, the hook cloned for
/// every poll.
type Shared = Arc<dyn StdError + Send + Sync>;
type OldHook = Arc<dyn Fn(Shared) + Send + Sync>;

thread_local! {
    static HOOK: RefCell<Option<OldHook>> = const { RefCell::new(None) };
}

struct Restore(Option<OldHook>);

impl Drop for Restore {
    fn drop(&mut self) {
        HOOK.set(self.0.take());
    }
}

struct ThrowsTwice;

impl Future for ThrowsTwice {
    type Output = ();

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(Refused([1, 2, 3, 4]));
        let shared: Shared = boxed.into();
        HOOK.with_borrow(|hook| {
            if let Some(hook) = hook {
                hook(shared);
            }
        });
        Poll::Pending
    }
}

struct Hooked(OldHook, ThrowsTwice);

impl Future for Hooked {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _restore = Restore(HOOK.replace(Some(self.0.clone())));
        Pin::new(&mut self.1).poll(cx)
    }
}

fn polled<F: Future<Output = ()>>(iterations: u64, future: F) -> Figures {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    repeat(iterations, || future.as_mut().poll(&mut cx).is_ready())
}

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            scenario: "rejection",
            peer: "ours",
            what: "one allocation, the hook lent to the poll",
            run: |n| {
                let hook: Arc<dyn rookery_error::ErrorHook> = Arc::new(Count::default());
                polled(n, rookery_error::ErrorHookFuture::with_hook(Some(hook), Throws))
            },
        },
        Case {
            scenario: "rejection",
            peer: "twice",
            what: "the error boxed and then shared, the hook cloned for the poll",
            run: |n| {
                let count = AtomicU64::new(0);
                let hook: OldHook = Arc::new(move |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                polled(n, Hooked(hook, ThrowsTwice))
            },
        },
    ]
}
