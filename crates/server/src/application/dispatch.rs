//! The functions by which the I/O thread passes requests to the application and executes the
//! application's commands.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rookery_exchange::{
    Command, Event, Exchange, ExchangeId, ListenerId, Payload, Peer, PushError, ResponseBody,
    StreamEnd, WakeUp,
};
use rookery_worker_protocol::{SharedScoreboard, now};
use tokio::sync::Notify;

use super::application::Application;
use super::exchange_pool::ExchangePool;
pub(crate) use super::in_flight::AppDecision;
use super::in_flight::InFlightTable;

/// The id of the next exchange (a request with its response). Ids are unique within the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The application, together with the requests that it has received and not answered yet.
pub(crate) struct Dispatch {
    pub(crate) application: Box<dyn Application>,
    in_flight: InFlightTable,
    pool: ExchangePool,
    commands: RefCell<VecDeque<Command>>,
    /// Notified when the application must be woken.
    pub(crate) wake_requested: Notify,
    /// Notified when the I/O thread must start to check periodically whether a busy application
    /// takes its events.
    pub(crate) watch_requested: Notify,
    is_watched: Cell<bool>,
    /// The scoreboard: the shared memory in which the supervisor reads how many requests the
    /// application has received.
    pub(crate) scoreboard: Option<Arc<SharedScoreboard>>,
    /// True if the application needs more than a millisecond to take events from its queue.
    pub(crate) is_app_slow: Cell<bool>,
}

impl Dispatch {
    pub(crate) fn new(
        application: Box<dyn Application>,
        pool_bytes: usize,
        scoreboard: Option<Arc<SharedScoreboard>>,
    ) -> Rc<Dispatch> {
        Rc::new(Dispatch {
            application,
            in_flight: InFlightTable::default(),
            pool: ExchangePool::new(pool_bytes),
            commands: RefCell::default(),
            wake_requested: Notify::new(),
            watch_requested: Notify::new(),
            is_watched: Cell::new(false),
            scoreboard,
            is_app_slow: Cell::new(false),
        })
    }

    /// Returns a new, unused id for an exchange (a request with its response).
    pub(crate) fn next_id() -> ExchangeId {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    // ---- requests ----

    /// Makes an exchange for a request and adds it to the table of requests in flight. `waiter` is
    /// the [key](crate::connections::table::Slot::key) of the connection that waits for the
    /// response.
    pub(crate) fn begin(
        &self,
        id: ExchangeId,
        listener: ListenerId,
        waiter: usize,
    ) -> Box<Exchange> {
        let mut exchange = self.pool.take();
        exchange.begin(id, listener, self.in_flight.open(id, waiter));
        exchange
    }

    /// Passes an event of a peer to the application, and wakes the application if necessary. If a
    /// request of another peer was dropped from the application's queue in favour of this one,
    /// returns the connection-table key of the connection that waits for it, which the caller must
    /// wake. Fails only for a request, if too many requests are queued.
    pub(crate) fn push(&self, peer: Peer, event: Event) -> Result<Option<usize>, PushError> {
        let (wake_up, displaced) = match self.hand_over(peer, event) {
            Err(PushError::Displaced { exchange, wake_up }) => {
                (wake_up, self.resolve(AppDecision::Displaced(exchange)))
            }
            handed_over => (handed_over?, None),
        };
        match wake_up {
            WakeUp::NotNeeded => {}
            WakeUp::Watch => self.watch_progress(),
            WakeUp::AfterBatch => self.wake_requested.notify_one(),
        }
        Ok(displaced)
    }

    fn hand_over(&self, peer: Peer, mut event: Event) -> Result<WakeUp, PushError> {
        if let Event::Request(exchange) | Event::Head(exchange) = &mut event {
            if exchange.is_measured() {
                exchange.set_queued_at(now());
            }
        }
        let Some(scoreboard) = self.scoreboard.as_deref().filter(|_| event.is_request()) else {
            return self.application.handle_event(peer, event);
        };
        // The request is counted before the event is passed on, because the application may have
        // taken the request when `handle_event` returns.
        scoreboard.count_handed();
        let handed_over = self.application.handle_event(peer, event);
        // In both cases of an error, one request less is queued.
        handed_over.inspect_err(|_| scoreboard.uncount_handed())
    }

    /// Takes the application's decision (to respond, or how to receive the body) on the request in
    /// this slot of the in-flight table. Returns `None` if the application has not decided yet.
    pub(crate) fn take_decision(&self, slot: u32) -> Option<AppDecision> {
        self.in_flight.take_decision(slot)
    }

    /// Removes a request from the table of requests in flight, because no connection waits for its
    /// response any more. Returns its exchange (the object of the request and its response) if the
    /// application has already returned it.
    pub(crate) fn abandon(&self, slot: u32) -> Option<Box<Exchange>> {
        let (id, decision) = self.in_flight.close(slot);
        match decision? {
            AppDecision::Respond(exchange)
            | AppDecision::ReadBody(exchange)
            | AppDecision::Displaced(exchange) => Some(exchange),
            AppDecision::StreamBody(listener) => {
                self.end_unstarted_body(id, listener, StreamEnd::Client);
                None
            }
        }
    }

    /// Ends an exchange (a request with its response) after the response was sent: closes its slot
    /// in the in-flight table and puts the exchange back into the pool.
    pub(crate) fn finish(&self, exchange: Box<Exchange>) {
        self.in_flight.close(exchange.slot());
        self.pool.put_back(exchange);
    }

    /// Puts the exchange of a disconnected client back into the pool. If the exchange has opened a
    /// WebSocket or has a streamed response, also notifies the application that the WebSocket or
    /// the response has ended.
    pub(crate) fn discard_exchange(&self, exchange: Box<Exchange>) {
        if is_accepted(&exchange) {
            let (socket, listener) = (exchange.id(), exchange.listener());
            if let Some(backlog) = exchange.backlog() {
                backlog.end();
            }
            let closed = Event::Closed {
                socket,
                listener,
                code: 1006,
                reason: Box::default(),
                is_clean: false,
            };
            self.notify(exchange.peer(), closed);
        } else if let ResponseBody::Stream(stream) = exchange.response().body() {
            stream.flow.end();
            let (stream, listener) = (exchange.id(), exchange.listener());
            let ended = Event::StreamEnded { stream, listener, reason: StreamEnd::Client };
            self.notify(exchange.peer(), ended);
        }
        self.pool.put_back(exchange);
    }

    /// Returns the number of requests that the application has received and not answered yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    // ---- WebSockets ----

    /// Passes an event of a peer to the application. The event must not be a request, because the
    /// application can refuse a request but no other event.
    pub(crate) fn notify(&self, peer: Peer, event: Event) {
        // Only requests are refused.
        let _ = self.push(peer, event);
    }

    /// Notifies the application that a request body ends of which it has received no chunk.
    fn end_unstarted_body(&self, exchange: ExchangeId, listener: ListenerId, reason: StreamEnd) {
        // No other event of the request is queued, so the order among them does not matter.
        self.notify(Peer::default(), Event::BodyEnd { exchange, listener, reason });
    }

    /// Gives a buffer back to the application for reuse, because the WebSocket message in it cannot
    /// be sent.
    pub(crate) fn recycle_payload(&self, payload: Payload) {
        if let Some(buffer) = payload.into_buffer() {
            self.application.recycle_buffer(buffer);
        }
    }

    // ---- commands of the application ----

    /// Calls `execute` for each command that the application has sent. Returns true if there were
    /// any.
    pub(crate) fn run_commands(&self, mut execute: impl FnMut(Command)) -> bool {
        let mut commands = self.commands.borrow_mut();
        self.application.take_commands(&mut commands);
        let was_any = !commands.is_empty();
        if was_any {
            commands.drain(..).for_each(&mut execute);
        }
        was_any
    }

    /// Returns the connection-table key of the connection that waits for the response of this
    /// exchange, or `None` if no connection waits for it any more.
    pub(crate) fn waiter(&self, exchange: &Exchange) -> Option<usize> {
        self.in_flight.waiter(exchange)
    }

    /// Stores the application's decision (to respond, or how to receive the body) on a request.
    /// Returns the connection-table key of the waiting connection, which the caller must wake, or
    /// `None` if no connection waits any more.
    pub(crate) fn resolve(&self, decision: AppDecision) -> Option<usize> {
        let (slot, id) = decision.exchange().map(|exchange| (exchange.slot(), exchange.id()))?;
        match self.in_flight.resolve(slot, id, decision) {
            Ok((waiter, before)) => {
                // The application responded before the connection could start to stream the body.
                if let Some(AppDecision::StreamBody(listener)) = before {
                    self.end_unstarted_body(id, listener, StreamEnd::Done);
                }
                Some(waiter)
            }
            Err(
                AppDecision::Respond(unwanted)
                | AppDecision::ReadBody(unwanted)
                | AppDecision::Displaced(unwanted),
            ) => {
                self.discard_exchange(unwanted);
                None
            }
            Err(AppDecision::StreamBody(_)) => None,
        }
    }

    /// Stores the application's decision to receive the body of a request chunk by chunk. Returns
    /// the key of the connection that waits for this decision, which the caller must wake, or
    /// `None` if no connection waits for it any more.
    pub(crate) fn stream_body(
        &self,
        slot: u32,
        call: ExchangeId,
        listener: ListenerId,
    ) -> Option<usize> {
        let waiter = self
            .in_flight
            .resolve(slot, call, AppDecision::StreamBody(listener))
            .ok()
            .map(|(waiter, _)| waiter);
        if waiter.is_none() {
            self.end_unstarted_body(call, listener, StreamEnd::Client);
        }
        waiter
    }

    // ---- waking ----

    /// Starts the periodic checks whether the application takes its queued events, unless they are
    /// already running. The first check is made after a millisecond.
    pub(crate) fn watch_progress(&self) {
        if !self.is_watched.replace(true) {
            self.watch_requested.notify_one();
        }
    }

    /// Stops the periodic checks whether the application takes its queued events, because it has
    /// taken all of them.
    pub(crate) fn end_watch(&self) {
        self.is_watched.set(false);
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Returns true if the exchange is a WebSocket handshake that the application has accepted.
pub(crate) fn is_accepted(exchange: &Exchange) -> bool {
    exchange.is_upgrade() && exchange.response().status() == 101
}

/// Returns true if the exchange has a streamed response, whose body is produced and sent chunk by
/// chunk.
pub(crate) fn is_streamed(exchange: &Exchange) -> bool {
    matches!(exchange.response().body(), ResponseBody::Stream(_))
}
