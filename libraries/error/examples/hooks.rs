//! A server in miniature: each request has a hook, which counts its errors and reports them to the
//! application, while the code that fails knows nothing of requests.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rookery_error::{Delivery, Error, ErrorHookFuture, Kind, Reports, StaticError, error, throw};

/// The kinds of errors that the server counts.
#[derive(Debug, Clone, Copy)]
enum Rejection {
    HeadTooLarge,
    Other,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rejection::HeadTooLarge => "the head is too large",
            Rejection::Other => "the request failed",
        })
    }
}

impl std::error::Error for Rejection {}

impl Kind for Rejection {
    const COUNT: usize = 2;

    fn of(error: &Error) -> Rejection {
        error.downcast_ref().copied().unwrap_or(Rejection::Other)
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// In a static, so that a rejection allocates nothing.
static HEAD_TOO_LARGE: StaticError<Rejection> = StaticError::new(Rejection::HeadTooLarge);

#[allow(clippy::unused_async)] // a real handler waits
async fn handle(head: &str) {
    if head.len() > 20 {
        throw(Error::from_static_error(&HEAD_TOO_LARGE));
    } else if head == "/fails" {
        throw(error!("disk full").context("writing the upload"));
    }
}

fn main() {
    let reports = Arc::new(Reports::<Rejection>::new());
    reports.set_delivery(Delivery::Queue);
    for (id, head) in ["/", "/fails", "/a-path-that-is-too-long"].into_iter().enumerate() {
        let hook = reports.hook();
        hook.begin(id as u64);
        let mut request = pin!(ErrorHookFuture::with_hook(Some(hook.clone()), handle(head)));
        let polled = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(()), "this example waits for nothing");
    }
    while let Some(report) = reports.take() {
        println!("request {:?}: {}", report.request, report.error);
        if let Some(source) = report.error.source() {
            println!("    because: {source}");
        }
    }
}
