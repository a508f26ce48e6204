//! The wrapper of streams.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use rookery_error::{ErrorHookStream, current_hook, throw};

use crate::Count;

/// A stream that throws once for each item.
struct Countdown(usize);

impl Stream for Countdown {
    type Item = usize;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<usize>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        throw("an item");
        self.0 -= 1;
        Poll::Ready(Some(self.0))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0, Some(self.0))
    }
}

#[test]
fn a_stream_has_its_hook_in_every_poll() {
    let (count, hook) = Count::new();
    let mut stream = pin!(ErrorHookStream::with_hook(Some(hook), Countdown(3)));
    assert_eq!(stream.size_hint(), (3, Some(3)));
    let mut cx = Context::from_waker(Waker::noop());
    let mut items = Vec::new();
    while let Poll::Ready(Some(item)) = stream.as_mut().poll_next(&mut cx) {
        assert!(current_hook().is_none());
        items.push(item);
    }
    assert_eq!(items, [2, 1, 0]);
    assert_eq!(count.thrown(), 3);
}
