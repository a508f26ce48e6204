//! A request's body, as a stream of frames. What is read is granted again at once: whoever reads puts it away, and does not read on
//! while it cannot.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};

use super::session::{STREAM_WINDOW, Session};
use crate::http::body::RequestBody;
use crate::http::connection::Connection;
use crate::rejection::Rejection;

/// Where the reply of a stream goes; its body says `100 Continue` there.
pub(super) type Respond = Rc<RefCell<SendResponse<Bytes>>>;

/// See the module.
pub(super) struct StreamBody {
    frames: RecvStream,
    connection: Rc<Connection>,
    session: Rc<Session>,
    /// Its length, if the peer told it.
    length: Option<u64>,
    read: u64,
    /// What of it may lie here unread.
    charged: usize,
    /// Whom it is to be said that the body is wanted.
    continues: Option<Respond>,
}

impl StreamBody {
    /// The body of a request with these headers. `None` when there is no room for it.
    pub(super) fn new(
        frames: RecvStream,
        headers: &HeaderMap,
        connection: &Rc<Connection>,
        session: &Rc<Session>,
        respond: &Respond,
    ) -> Option<StreamBody> {
        let length =
            headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let window = STREAM_WINDOW as usize;
        let charged = match length {
            _ if frames.is_end_stream() => 0,
            Some(length) => usize::try_from(length).unwrap_or(window).min(window),
            None => window,
        };
        if charged > 0 && !session.begin_body(charged) {
            return None;
        }
        let expects = headers.get(http::header::EXPECT);
        let continues = expects
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
            .then(|| Rc::clone(respond));
        let (connection, session) = (Rc::clone(connection), Rc::clone(session));
        Some(StreamBody { frames, connection, session, length, read: 0, charged, continues })
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        if self.charged > 0 {
            self.session.end_body(self.charged);
        }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let polled = self.frames.poll_data(cx);
        if polled.is_pending() {
            if let Some(respond) = self.continues.take() {
                let mut response = Response::new(());
                *response.status_mut() = StatusCode::CONTINUE;
                // Failing means that the stream is over, which reading tells as well.
                let _ = respond.borrow_mut().send_informational(response);
            }
        }
        let now = self.connection.http.peers.clock.now();
        let read = match &polled {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(data))) => Poll::Ready(Ok(data.len())),
            Poll::Ready(_) => Poll::Ready(Ok(0)),
        };
        self.connection.standing.has_read(&read, now);
        match ready!(polled) {
            Some(Ok(data)) => {
                self.continues = None;
                self.read += data.len() as u64;
                // Failing means that the stream is over.
                let _ = self.frames.flow_control().release_capacity(data.len());
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.length
            .map_or_else(SizeHint::default, |length| SizeHint::with_exact(length.saturating_sub(self.read)))
    }
}

impl RequestBody for StreamBody {
    /// Its stream has been reset, by h2 if what came was wrong, or the connection is over: there is nobody to answer.
    fn rejection(_: &h2::Error) -> Option<Rejection> {
        None
    }

    fn is_cut_short(_: &h2::Error) -> bool {
        true
    }
}
