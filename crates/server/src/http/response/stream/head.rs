//! The head of a streamed response. The server delays the head until the application's first chunk.
//! If the application fails earlier, the server can thus still send an ordinary error response.

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

/// The maximum time for which the head of a streamed response waits for the first chunk. It is much
/// shorter than the minute for which proxies wait for a response head.
const MAX_HEAD_DELAY: Duration = Duration::from_secs(1);

/// Builds a streamed response once its head can be sent.
pub(crate) async fn respond_streamed(
    mut context: RequestContext,
    exchange: Box<Exchange>,
    headers: HeaderMap,
    options: ResponseOptions,
) -> Response<ResponseBody> {
    let shared = Rc::clone(&context.connection.shared);
    let Some(stream) = shared.response_streams.get(context.id) else {
        debug_assert!(false, "opened with the response, and removed only by its connection");
        shared.dispatch.finish(exchange);
        return builder::reject(context, headers, Rejection::Application);
    };
    context.begin_response_stream(&stream);
    let has_body = !options.is_head() && !builder::is_bodiless(exchange.response().status());
    let guard = ExchangeGuard { shared: Rc::clone(&shared), exchange: Some(exchange) };
    if has_body {
        let _ = tokio::time::timeout(MAX_HEAD_DELAY, head_ready(&stream)).await;
    }
    let mut exchange = guard.release();
    if let Some((status, page)) = stream.take_failure() {
        if status.is_none() {
            rookery_error::throw(Rejection::Application.error());
        }
        shared.response_streams.end(&stream, StreamEnd::Error);
        context.begin_response();
        exchange.begin_response(status.unwrap_or(Rejection::Application.status()));
        // The name and the value are the server's own and therefore valid, so this cannot fail.
        let _ = exchange.push_response_header(b"Content-Type", b"text/plain; charset=UTF-8");
        let own = Rejection::Application.text().as_bytes();
        exchange.set_response_body(if page.is_empty() { own } else { &page });
    } else {
        stream.on_head_sent();
    }
    let response = builder::build(context, &mut exchange, headers, options);
    shared.dispatch.finish(exchange);
    response
}

/// A guard for the exchange (the object of a request and its response) of a streamed response that
/// waits for its first chunk. If the client disconnects meanwhile, the guard frees the exchange.
struct ExchangeGuard {
    shared: Rc<HttpState>,
    exchange: Option<Box<Exchange>>,
}

impl ExchangeGuard {
    fn release(mut self) -> Box<Exchange> {
        self.exchange.take().expect("only this function and `drop` take it")
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            self.shared.dispatch.finish(exchange);
        }
    }
}

/// Waits until the head of a streamed response can be sent.
async fn head_ready(stream: &ResponseStream) {
    poll_fn(|_| {
        // The connection's own waker wakes this task.
        if stream.can_send_head() {
            return Poll::Ready(());
        }
        stream.request_chunk();
        Poll::Pending
    })
    .await;
}
