//! Asking the application, and waiting for its answer.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rookery_exchange::{Event, Exchange, ExchangeStatus, PushError, TerminationState};

use crate::application::dispatch::AppDecision;
use crate::http::connection::http_connection::HttpConnection;
use crate::http::request::request_context::RequestContext;

/// The client has gone: there is nobody to answer.
#[derive(Debug)]
pub(crate) struct ClientDisconnected;

impl std::fmt::Display for ClientDisconnected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for ClientDisconnected {}

/// Why the application is not waited for any more.
#[derive(Debug)]
pub(crate) enum WaitAborted {
    /// The client has gone.
    Disconnected,
    /// The application has had its time.
    TimedOut,
}

/// Why there is no answer.
pub(crate) enum NoResponse {
    /// Too many wait for the application: the exchange has come back.
    QueueFull(Box<Exchange>),
    /// The client has gone.
    Disconnected,
    /// The application has had its time.
    TimedOut,
    /// The application keeps the exchange, and has its body come in pieces.
    StreamsBody(PendingResponse),
}

/// Hands the exchange of a call to the application and waits for its answer.
pub(crate) async fn send_to_application(
    context: &mut RequestContext,
    exchange: Box<Exchange>,
    event: fn(Box<Exchange>) -> Event,
) -> Result<AppDecision, NoResponse> {
    context.is_asked();
    let mut pending = PendingResponse::new(&context.connection, &exchange);
    let mut log_guard = UpstreamLogGuard::new(context, &exchange);
    match log_guard.context.shared().dispatch.push(event(exchange)) {
        Ok(()) => match (&mut pending).await {
            Ok(AppDecision::StreamBody(_)) => {
                pending.is_over = false;
                Err(NoResponse::StreamsBody(pending))
            }
            Ok(answer) => Ok(answer),
            Err(WaitAborted::Disconnected) => Err(NoResponse::Disconnected),
            Err(WaitAborted::TimedOut) => {
                log_guard.ended = Some(TerminationState::Timeout);
                Err(NoResponse::TimedOut)
            }
        },
        Err(PushError::Full(exchange)) => {
            pending.cancel();
            Err(NoResponse::QueueFull(exchange))
        }
        Err(_) => Err(NoResponse::Disconnected),
    }
}

/// Has the log's entry say what became of the request at workers, however the asking ends: also when it is dropped, since the client has
/// gone and the application keeps the exchange.
struct UpstreamLogGuard<'a> {
    context: &'a mut RequestContext,
    /// Of a request that is logged.
    fate: Option<Arc<ExchangeStatus>>,
    ended: Option<TerminationState>,
}

impl<'a> UpstreamLogGuard<'a> {
    fn new(context: &'a mut RequestContext, exchange: &Exchange) -> UpstreamLogGuard<'a> {
        let fate = context.is_logged().then(|| exchange.shared_status());
        UpstreamLogGuard { context, fate, ended: None }
    }
}

impl Drop for UpstreamLogGuard<'_> {
    fn drop(&mut self) {
        let Some(mut upstream) = self.fate.as_ref().and_then(|fate| fate.upstream_log()) else {
            return;
        };
        upstream.termination_state = self.ended.or(upstream.termination_state);
        self.context.pending_record().set_upstream(upstream);
    }
}

/// Waits for the application. Dropped before, it tells the application that nobody waits for its answer.
#[derive(Debug)]
pub(crate) struct PendingResponse {
    connection: Rc<HttpConnection>,
    slot: u32,
    fate: Arc<ExchangeStatus>,
    is_over: bool,
}

impl PendingResponse {
    fn new(connection: &Rc<HttpConnection>, exchange: &Exchange) -> PendingResponse {
        PendingResponse {
            connection: Rc::clone(connection),
            slot: exchange.slot(),
            fate: exchange.shared_status(),
            is_over: false,
        }
    }

    /// The answer, when it has come. Does not look whether there is anybody to answer.
    pub(crate) fn take_decision(&mut self) -> Option<AppDecision> {
        let answer = self.connection.shared.dispatch.take_decision(self.slot);
        self.is_over |= answer.is_some();
        answer
    }

    /// The exchange was not handed over after all.
    fn cancel(mut self) {
        self.is_over = true;
    }
}

impl Future for PendingResponse {
    type Output = Result<AppDecision, WaitAborted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Woken by the connection's own waker, which it keeps while it is driven.
        if let Some(answer) = self.take_decision() {
            return Poll::Ready(Ok(answer));
        }
        if self.connection.has_request_timed_out() {
            return Poll::Ready(Err(WaitAborted::TimedOut));
        }
        // Asked first, since that is what finds a FIN.
        let is_disconnected = self.connection.detect_disconnect(cx)
            || (self.fate.is_waiting() && self.connection.counts_as_disconnected());
        if is_disconnected { Poll::Ready(Err(WaitAborted::Disconnected)) } else { Poll::Pending }
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if !self.is_over {
            self.fate.set_disconnected();
            let shared = &self.connection.shared;
            if self.fate.is_waiting() {
                shared.dispatch.application.on_client_disconnect();
            }
            match shared.dispatch.abandon(self.slot) {
                Some(exchange) => shared.discard_exchange(exchange),
                None => self.connection.on_request_abandoned(&self.fate),
            }
        }
    }
}

/// Closes the place of an exchange whose body is being read, should that end before [`BodyReadGuard::done`].
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
