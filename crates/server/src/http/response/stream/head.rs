//! The head of a reply that comes in pieces: it waits for the first of them, so that a failure before that is an ordinary
//! 500, or what the application has for it.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, Response};
use rookery_exchange::{Exchange, StreamEnd};

use crate::http::http_state::HttpState;
use crate::http::request::request_context::RequestContext;
use crate::http::response::builder::{self, ResponseOptions};
use crate::http::response::response_body::ResponseBody;
use crate::http::response::stream::response_stream::ResponseStream;
use crate::rejection::Rejection;

/// How long a head waits for the first piece. A proxy waits for one for a minute, a person for less.
const HEAD_WAITS: Duration = Duration::from_secs(1);

/// Makes the response of a stream, when its head can leave.
pub(crate) async fn respond_streamed(
    mut context: RequestContext,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    form: ResponseOptions,
) -> Response<ResponseBody> {
    let shared = Rc::clone(&context.connection.shared);
    let Some(stream) = shared.streams.get(context.id) else {
        debug_assert!(false, "opened when the application answered, ended by its connection alone");
        shared.dispatch.finish(exchange);
        return builder::reject(context, headers, Rejection::Application);
    };
    context.streams(&stream);
    let has_body = !form.is_head() && !builder::is_bodiless(exchange.response().status());
    let held = Held { shared: Rc::clone(&shared), exchange: Some(exchange) };
    if has_body {
        let _ = tokio::time::timeout(HEAD_WAITS, begun(&stream)).await;
    }
    let mut exchange = held.release();
    if let Some((status, page)) = stream.failure() {
        if status.is_none() {
            rookery_error::throw(Rejection::Application.error());
        }
        shared.streams.end(&stream, StreamEnd::Error);
        context.replies();
        exchange.begin_response(status.unwrap_or(Rejection::Application.status()));
        // A name and a value of ours: they are not refused.
        let _ = exchange.push_response_header(b"Content-Type", b"text/plain; charset=UTF-8");
        let own = Rejection::Application.text().as_bytes();
        exchange.set_response_body(if page.is_empty() { own } else { &page });
    } else {
        stream.has_head();
    }
    let response = builder::build(context, &mut exchange, headers, form);
    shared.dispatch.finish(exchange);
    response
}

/// An exchange whose reply waits for the first piece: when the client goes meanwhile, its place is free again.
struct Held {
    shared: Rc<HttpState>,
    exchange: Option<Box<Exchange>>,
}

impl Held {
    fn release(mut self) -> Box<Exchange> {
        self.exchange.take().expect("taken here and by `drop` alone")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.shared.dispatch.finish(exchange);
        }
    }
}

/// Waits until the head can leave.
async fn begun(stream: &ResponseStream) {
    poll_fn(|_| {
        // Woken by the connection's own waker, as whoever waits for an answer.
        if stream.has_begun() {
            return Poll::Ready(());
        }
        stream.ask();
        Poll::Pending
    })
    .await;
}
