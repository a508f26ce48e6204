//! The state that the tasks of an I/O thread share, and the function that executes the
//! application's commands.

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rookery_error::Reports;
use rookery_exchange::{
    AdaptiveYield, Budget, Command, Exchange, ResponseBody, Share, StreamEnd, StreamId,
};
use rookery_trace::Tracer;
use rookery_worker_protocol::{RouteTable, SharedScoreboard};

use crate::application::application::Application;
use crate::application::dispatch::{AppDecision, Dispatch, is_accepted, is_streamed};
use crate::config::Limits;
use crate::connections::client_task;
use crate::connections::table::ConnectionTable;
use crate::http::http_state::HttpState;
use crate::http::response::stream::response_stream::ResponseStream;
use crate::logging::access_log::pending_record::{CurrentLog, RequestLog};
use crate::net::transport::Scratch;
use crate::rejection::Rejection;
use crate::websocket::context::WebSocketContext;
use crate::websocket::registry::WebSocketRegistry;
use crate::websocket::shiny_messages::ShinyRecords;

/// The state that the tasks of an I/O thread share, such as the connection table and the
/// application.
#[derive(Debug)]
pub(super) struct IoContext {
    pub(super) connections: Rc<ConnectionTable>,
    pub(super) dispatch: Rc<Dispatch>,
    pub(super) http: Rc<HttpState>,
    /// Decides whether the thread yields the processor to the application before it sleeps.
    pub(super) yields: AdaptiveYield,
    /// A panic that has occurred between the polls of clients' tasks, and ends the thread.
    pub(super) panic: RefCell<Option<Box<dyn Any + Send>>>,
    websockets: Rc<WebSocketRegistry>,
}

impl IoContext {
    pub(super) fn new(
        application: Box<dyn Application>,
        limits: &Limits,
        trim: Option<fn(bool)>,
        (log, tracer): (Arc<CurrentLog>, Option<Arc<Tracer>>),
        reports: Arc<Reports<Rejection>>,
        budget: Arc<Budget>,
        scoreboard: Option<Arc<SharedScoreboard>>,
    ) -> Rc<IoContext> {
        let routes = scoreboard
            .clone()
            .map(|scoreboard| scoreboard as Arc<dyn AsRef<RouteTable>>)
            .or_else(|| Some(application.routes()? as Arc<dyn AsRef<RouteTable>>));
        let sessions = scoreboard
            .as_ref()
            .map(|scoreboard| Arc::clone(scoreboard.sessions()))
            .or_else(|| application.sessions());
        let shiny = routes
            .clone()
            .zip(sessions)
            .map(|(routes, sessions)| ShinyRecords { routes, sessions });
        application.set_budget(&budget);
        let dispatch = Dispatch::new(application, limits.pool_bytes, scoreboard);
        let connections = ConnectionTable::new(limits, budget, trim);
        let scratch = Scratch::new();
        let websockets = WebSocketRegistry::new(WebSocketContext::new(
            Rc::clone(&connections),
            Rc::clone(&dispatch),
            Rc::clone(&scratch),
            Arc::clone(&reports),
            Arc::clone(&log),
            shiny,
        ));
        let log = RequestLog::new(log, routes);
        let http = HttpState::new(Rc::clone(&websockets), scratch, log, reports, tracer);
        Rc::new(IoContext {
            connections,
            dispatch,
            http,
            yields: AdaptiveYield::default(),
            panic: RefCell::default(),
            websockets,
        })
    }

    /// Executes the commands that the application has sent. Returns true if there were any.
    pub(super) fn run_app_commands(&self) -> bool {
        client_task::on_served();
        let was_any = self.dispatch.run_commands(|command| self.run_app_command(command));
        self.websockets.wake_waiting();
        was_any
    }

    fn run_app_command(&self, command: Command) {
        match command {
            Command::Respond(mut exchange) => {
                exchange.response_mut().charge_file(&self.connections.budget);
                // The WebSocket or stream is registered before its connection is woken, because the
                // application's next commands may already refer to it.
                if is_accepted(&exchange) && self.dispatch.waiter(&exchange).is_some() {
                    self.websockets.open(&exchange);
                } else if is_streamed(&exchange) && self.dispatch.waiter(&exchange).is_some() {
                    self.http.open_response_stream(&exchange);
                } else if let ResponseBody::Owned(body) = exchange.response().body() {
                    let bytes = self.connections.budget.bytes_of_response(body.capacity());
                    self.admit_response(&mut exchange, bytes);
                }
                self.resolve(AppDecision::Respond(exchange));
            }
            Command::ReadBody(exchange) => self.resolve(AppDecision::ReadBody(exchange)),
            Command::StreamBody { exchange: call, listener, slot } => {
                if let Some(key) = self.dispatch.stream_body(slot, call, listener) {
                    self.connections.wake(key);
                }
            }
            Command::BodyConsumed { exchange: call, bytes } => {
                if let Some(key) = self.http.request_streams.on_chunk_processed(call, bytes) {
                    self.connections.wake(key);
                }
            }
            Command::Send { socket, kind, payload } => match self.websockets.get(socket) {
                Some(socket) => socket.send(kind, payload),
                None => self.dispatch.recycle_payload(payload),
            },
            Command::Ping { socket } => {
                if let Some(socket) = self.websockets.get(socket) {
                    socket.ping();
                }
            }
            Command::Close { socket, code, reason } => {
                if let Some(socket) = self.websockets.get(socket) {
                    socket.close(code, &reason);
                }
            }
            Command::Abort { socket } => {
                if let Some(socket) = self.websockets.get(socket) {
                    socket.abort();
                }
            }
            Command::Chunk { stream, payload, is_pushing: goes_on } => {
                match self.http.response_streams.get(stream) {
                    Some(stream) => stream.push(payload, goes_on),
                    None => self.dispatch.recycle_payload(payload),
                }
            }
            Command::ResumePulls { stream } => {
                self.with_stream(stream, ResponseStream::resume_pulling);
            }
            Command::SendHead { stream } => self.with_stream(stream, ResponseStream::send_head),
            Command::EndStream { stream } => self.with_stream(stream, ResponseStream::end),
            Command::AbortStream { stream, reason: StreamEnd::Stop, .. } => {
                self.with_stream(stream, ResponseStream::end_for_stop);
            }
            Command::AbortStream { stream, reason, page } => {
                self.with_stream(stream, |stream| stream.fail(reason, page));
            }
        }
    }

    /// Charges the memory budget for a response that has arrived in memory of its own, or drops its
    /// body if there is no room for it. The task of the client decides about other responses, but
    /// it may run only after many more have arrived.
    fn admit_response(&self, exchange: &mut Exchange, bytes: usize) {
        let waiter = self.dispatch.waiter(exchange).and_then(|key| self.connections.get(key));
        let is_admitted = waiter.is_none_or(|entry| entry.admit_response(bytes));
        let body = exchange.response_mut().body_mut();
        if !is_admitted {
            *body = ResponseBody::Refused;
        } else if let ResponseBody::Owned(body) = body {
            body.set_charge(self.connections.charge(Share::Outgoing, bytes));
        }
    }

    fn with_stream(&self, stream: StreamId, body: impl FnOnce(&ResponseStream)) {
        if let Some(stream) = self.http.response_streams.get(stream) {
            body(&stream);
        }
    }

    fn resolve(&self, decision: AppDecision) {
        if let Some(key) = self.dispatch.resolve(decision) {
            self.connections.wake(key);
        }
    }
}
