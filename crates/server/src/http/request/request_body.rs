//! What bodies of requests over HTTP/1.1 and HTTP/2 have in common.

use std::io;
use std::task::Context;

use bytes::Bytes;
use hyper::body::Incoming;

use crate::rejection::Rejection;

/// A request's body, as its protocol reads it.
pub(crate) trait RequestBody: http_body::Body<Data = Bytes> + Unpin {
    /// What is answered when it could not be read; `None`: there is nobody to answer.
    fn rejection(error: &Self::Error) -> Option<Rejection>;

    /// Whether it ended before its end, because its client has gone, or sends no more.
    fn is_cut_short(error: &Self::Error) -> bool;

    /// Takes over what has arrived while nobody reads. HTTP/2 needs this: h2 closes a connection on
    /// which too many small frames wait.
    fn buffer_unread(&mut self, _cx: &mut Context<'_>) {}
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
