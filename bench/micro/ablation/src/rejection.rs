//! The rejection of a request: the poll of its future throws one error to the hook of that request.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use rookery_error::{Error, ErrorHook, ErrorHookFuture, ErrorId, throw};

use rookery_bench_meter::{Figures, repeat};

/// An error of 32 bytes, as in leptos PR 4777.
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

impl ErrorHook for Count {
    fn throw(&self, _: Error) -> ErrorId {
        (self.0.fetch_add(1, Ordering::Relaxed) as usize).into()
    }

    fn clear(&self, _: &ErrorId) {}
}

struct Throws;

impl Future for Throws {
    type Output = ();

    #[inline(never)]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        throw(Error::new(Refused([1, 2, 3, 4])));
        Poll::Pending
    }
}

/// Polls a future under a hook and throws one error of 32 bytes.
pub fn run(n: u64) -> Figures {
    let hook: Arc<dyn ErrorHook> = Arc::new(Count::default());
    let mut future = pin!(ErrorHookFuture::with_hook(Some(hook), Throws));
    let mut cx = Context::from_waker(Waker::noop());
    repeat(n, || future.as_mut().poll(&mut cx).is_ready())
}
