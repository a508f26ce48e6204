//! The responder, which passes responses and other commands from the pool (the part that assigns
//! requests to workers) to the server.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use rookery_exchange::{Command, Exchange, IoWaker};
use rookery_worker_protocol::{RouteTable, ShinySessions};

use super::balancing::queue::QueuedRequest;
use super::error_reply::ErrorReply;
use crate::backend_registry::BackendRegistry;
use rookery_status::PoolCounters;

/// The queue of commands from the pool to the server. When a response is added to the queue, it is
/// also counted for the metrics.
pub(super) struct Responder {
    registry: Arc<BackendRegistry>,
    waker: Arc<dyn IoWaker>,
    commands: RefCell<VecDeque<Command>>,
}

impl Responder {
    pub(super) fn new(registry: Arc<BackendRegistry>, waker: Arc<dyn IoWaker>) -> Responder {
        Responder { registry, waker, commands: RefCell::default() }
    }

    /// Returns the counters of the pool, which the metrics report.
    pub(super) fn counters(&self) -> &PoolCounters {
        &self.registry.counters
    }

    /// Returns the table in which the front end counts requests by route.
    pub(super) fn routes(&self) -> &Arc<RouteTable> {
        &self.registry.routes
    }

    /// Returns the record of the sessions of Shiny whose WebSockets the front end has accepted.
    pub(super) fn sessions(&self) -> &Arc<ShinySessions> {
        &self.registry.sessions
    }

    /// Adds a command for the server to the queue, and wakes the server's I/O thread if the queue
    /// was empty.
    pub(super) fn send_command(&self, command: Command) {
        let mut commands = self.commands.borrow_mut();
        commands.push_back(command);
        if commands.len() == 1 {
            self.waker.wake();
        }
    }

    /// Wakes the server's I/O thread.
    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// Wakes the server's I/O thread if commands are queued that were not announced.
    pub(super) fn announce(&self) {
        if self.has_commands() {
            self.waker.wake();
        }
    }

    /// Adds a command for the server to the queue, while the server takes the commands.
    pub(super) fn send_unannounced(&self, command: Command) {
        self.commands.borrow_mut().push_back(command);
    }

    /// Passes a request with its response to the server, while the server takes the commands.
    pub(super) fn respond_unannounced(&self, exchange: Box<Exchange>) {
        if !exchange.is_client_disconnected() {
            self.counters().requests.responses.add(exchange.response().status());
        }
        self.send_unannounced(Command::Respond(exchange));
    }

    /// Passes a request with its response to the server, which sends the response. If the client
    /// has disconnected, the response may be missing.
    pub(super) fn respond(&self, exchange: Box<Exchange>) {
        if !exchange.is_client_disconnected() {
            self.counters().requests.responses.add(exchange.response().status());
        }
        self.send_command(Command::Respond(exchange));
    }

    /// Responds to a request with an error, because no worker will respond to it.
    pub(super) fn reject(&self, mut request: QueuedRequest, error: ErrorReply) {
        request.exchange.set_waiting(false);
        request.exchange.update_upstream_log(|upstream| {
            upstream.on_terminated(error.termination_state(), Instant::now());
        });
        error.write(&mut request.exchange);
        self.respond(request.exchange);
    }

    /// Moves all queued commands for the server to `commands`, which must be empty.
    pub(super) fn take_commands(&self, commands: &mut VecDeque<Command>) {
        std::mem::swap(&mut *self.commands.borrow_mut(), commands);
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.commands.borrow().is_empty()
    }
}
