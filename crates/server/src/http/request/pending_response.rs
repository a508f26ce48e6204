//! Sends a request to the application, and waits for its response.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rookery_exchange::{Event, Exchange, ExchangeStatus, PushError, TerminationState};

use crate::application::dispatch::AppDecision;
use crate::http::connection::http_connection::{HttpConnection, WaitAborted};
use crate::http::request::request_context::RequestContext;
use crate::rejection::Rejection;

/// The error that the client disconnected, so that no response can be sent.
#[derive(Debug)]
pub(crate) struct ClientDisconnected;

impl std::fmt::Display for ClientDisconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has disconnected")
    }
}

impl std::error::Error for ClientDisconnected {}

/// The reason why the application has provided no response.
pub(crate) enum NoResponse {
    /// The application's queue is full, so the request was not sent to the application, or was
    /// dropped from its queue. Contains the exchange (the object of the request and its response).
    QueueFull(Box<Exchange>),
    /// The client disconnected before the application responded.
    Disconnected,
    /// The server has stopped waiting, and rejects the request.
    Rejected(Rejection),
    /// The application has not responded yet, and wants to receive the request body chunk by chunk.
    StreamsBody(PendingResponse),
}

/// Sends a request to the application, and waits until the application responds or asks for the
/// request body.
pub(crate) async fn send_to_application(
    context: &mut RequestContext,
    exchange: Box<Exchange>,
    event: fn(Box<Exchange>) -> Event,
) -> Result<AppDecision, NoResponse> {
    context.begin_waiting();
    context.pending_record().set_for_app();
    let (peer, mut pending) =
        (exchange.peer(), PendingResponse::new(&context.connection, &exchange));
    let mut log_guard = UpstreamLogGuard::new(context, &exchange);
    let shared = log_guard.context.shared();
    let pushed = shared.dispatch.push(peer, event(exchange));
    if let Ok(Some(displaced)) = pushed {
        shared.connections.wake(displaced);
    }
    match pushed {
        Ok(_) => match (&mut pending).await {
            Ok(AppDecision::StreamBody(_)) => {
                pending.is_over = false;
                Err(NoResponse::StreamsBody(pending))
            }
            Ok(AppDecision::Displaced(exchange)) => Err(NoResponse::QueueFull(exchange)),
            Ok(answer) => Ok(answer),
            Err(WaitAborted::Disconnected) => Err(NoResponse::Disconnected),
            Err(WaitAborted::TimedOut) => {
                log_guard.termination_state = Some(TerminationState::Timeout);
                Err(NoResponse::Rejected(Rejection::RequestTimeout))
            }
            Err(WaitAborted::Evicted) => {
                log_guard.termination_state = Some(TerminationState::Queue);
                Err(NoResponse::Rejected(Rejection::Busy))
            }
        },
        Err(PushError::Full(exchange)) => {
            pending.cancel();
            Err(NoResponse::QueueFull(exchange))
        }
        Err(_) => Err(NoResponse::Disconnected),
    }
}

/// A guard that adds data about the workers of a request to the access log record when it is
/// dropped. This data is thus logged even if the client disconnects early.
struct UpstreamLogGuard<'a> {
    context: &'a mut RequestContext,
    /// The status of the request, which the application updates. `None` if the request is not
    /// logged.
    status: Option<Arc<ExchangeStatus>>,
    termination_state: Option<TerminationState>,
}

impl<'a> UpstreamLogGuard<'a> {
    fn new(context: &'a mut RequestContext, exchange: &Exchange) -> UpstreamLogGuard<'a> {
        let status = context.is_logged().then(|| exchange.shared_status());
        UpstreamLogGuard { context, status, termination_state: None }
    }
}

impl Drop for UpstreamLogGuard<'_> {
    fn drop(&mut self) {
        let Some(mut upstream) = self.status.as_ref().and_then(|status| status.upstream_log())
        else {
            return;
        };
        upstream.termination_state = self.termination_state.or(upstream.termination_state);
        self.context.pending_record().set_upstream(upstream);
    }
}

/// A future that waits for the application's decision about a request, such as a response. If it is
/// dropped early, the application is notified that its response is no longer needed.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    connection: Rc<HttpConnection>,
    slot: u32,
    is_over: bool,
}

impl PendingResponse {
    fn new(connection: &Rc<HttpConnection>, exchange: &Exchange) -> PendingResponse {
        connection.begin_wait(exchange.shared_status());
        PendingResponse { connection: Rc::clone(connection), slot: exchange.slot(), is_over: false }
    }

    /// Returns the application's decision about a request if it has arrived, without checking
    /// whether the client is still connected.
    pub(crate) fn take_decision(&mut self) -> Option<AppDecision> {
        let answer = self.connection.shared.dispatch.take_decision(self.slot);
        self.is_over |= answer.is_some();
        answer
    }

    /// Ends the wait for the application's decision, because the request did not reach the
    /// application.
    fn cancel(mut self) {
        self.is_over = true;
    }
}

impl Future for PendingResponse {
    type Output = Result<AppDecision, WaitAborted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The connection's own waker, which stays registered while the connection is driven, wakes
        // this task.
        if let Some(answer) = self.take_decision() {
            return Poll::Ready(Ok(answer));
        }
        if let Some(end) = self.connection.wait_end.get() {
            return Poll::Ready(Err(end));
        }
        // This check comes first because it detects a FIN.
        let is_disconnected = self.connection.detect_disconnect(cx)
            || (self.connection.is_request_waiting() && self.connection.counts_as_disconnected());
        if is_disconnected { Poll::Ready(Err(WaitAborted::Disconnected)) } else { Poll::Pending }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        let status = self.connection.end_wait().filter(|_| !self.is_over);
        if let Some(status) = status {
            status.set_disconnected();
            let shared = &self.connection.shared;
            if status.is_waiting() {
                shared.dispatch.application.on_client_disconnect();
            }
            match shared.dispatch.abandon(self.slot) {
                Some(exchange) => shared.discard_exchange(exchange),
                None => self.connection.on_request_abandoned(&status),
            }
        }
    }
}

/// A guard for a request whose body is being read. When dropped, it removes the request from the
/// in-flight table (the requests without a response), unless [`BodyReadGuard::done`] was called.
#[derive(Debug)]
pub(crate) struct BodyReadGuard {
    connection: Rc<HttpConnection>,
    slot: u32,
    is_done: bool,
}

impl BodyReadGuard {
    pub(crate) fn new(context: &RequestContext, exchange: &Exchange) -> BodyReadGuard {
        BodyReadGuard {
            connection: Rc::clone(&context.connection),
            slot: exchange.slot(),
            is_done: false,
        }
    }

    pub(crate) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for BodyReadGuard {
    fn drop(&mut self) {
        if !self.is_done {
            self.connection.shared.dispatch.abandon(self.slot);
        }
    }
}
