//! The common interface for reading request bodies over HTTP/1.1 and HTTP/2.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Context;

use bytes::Bytes;
use hyper::body::Incoming;

use crate::rejection::Rejection;

/// The body of a request, as it is read over HTTP/1.1 or HTTP/2.
pub(crate) trait RequestBody: http_body::Body<Data = Bytes> + Unpin {
    /// Returns the error response to send after the request body could not be read, or `None` if
    /// the client disconnected.
    fn rejection(error: &Self::Error) -> Option<Rejection>;

    /// Returns true if the read error means that the request body ended early because the client
    /// disconnected or stopped sending.
    fn is_cut_short(error: &Self::Error) -> bool;

    /// Buffers the part of the request body that has arrived. Called while the server does not read
    /// the body, because h2 closes an HTTP/2 connection on which too many small frames are waiting.
    fn buffer_unread(&mut self, _cx: &mut Context<'_>) {}
}

/// Waits for `work`, such as a write to disk or a decision of the application, and returns its
/// result. Meanwhile, buffers the part of the request body that arrives, without processing it.
pub(crate) async fn with_body_held<B: RequestBody, T>(
    body: &mut B,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        body.buffer_unread(cx);
        work.as_mut().poll(cx)
    })
    .await
}

impl RequestBody for Incoming {
    fn rejection(error: &hyper::Error) -> Option<Rejection> {
        (!error.is_incomplete_message()).then_some(Rejection::BodyUnreadable)
    }

    fn is_cut_short(error: &hyper::Error) -> bool {
        let io =
            std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
        io.is_some_and(|error| {
            error.kind() != io::ErrorKind::InvalidData
                && error.kind() != io::ErrorKind::InvalidInput
        })
    }
}
