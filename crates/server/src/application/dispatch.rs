//! What the tasks of an I/O thread ask of the application, and what is in flight to it and back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rookery_exchange::{
    Budget, Command, Event, Exchange, ExchangeId, ListenerId, Payload, PushError, ResponseBody,
    StreamEnd, WakeUp,
};
use rookery_worker_protocol::{SharedScoreboard, now};
use tokio::sync::Notify;

use super::application::Application;
use super::exchange_pool::ExchangePool;
pub(crate) use super::in_flight::AppDecision;
use super::in_flight::InFlightTable;

/// Ids are unique in the process, so that a WebSocket of an earlier server is not taken for one of a later.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The application, with what it has been asked.
pub(crate) struct Dispatch {
    pub(crate) application: Box<dyn Application>,
    in_flight: InFlightTable,
    pool: ExchangePool,
    commands: RefCell<VecDeque<Command>>,
    /// The application is to be woken, after the tasks that are ready now.
    pub(crate) wake_requested: Notify,
    /// Somebody has to look whether a busy application comes back.
    pub(crate) watch_requested: Notify,
    is_watched: Cell<bool>,
    /// Whether anything has been passed on to another process since the thread was about to sleep.
    pub(crate) has_forwarded: Cell<bool>,
    /// Where a supervisor reads what the application has to do.
    pub(crate) scoreboard: Option<Arc<SharedScoreboard>>,
    /// Whether requests are told when they were handed over ([`Exchange::times`]).
    is_timed: bool,
    /// Whether it takes longer than a millisecond.
    pub(crate) is_app_slow: Cell<bool>,
}

impl Dispatch {
    pub(crate) fn new(
        application: Box<dyn Application>,
        pool_bytes: usize,
        budget: Arc<Budget>,
        scoreboard: Option<Arc<SharedScoreboard>>,
        is_timed: bool,
    ) -> Rc<Dispatch> {
        Rc::new(Dispatch {
            application,
            in_flight: InFlightTable::default(),
            pool: ExchangePool::new(pool_bytes, budget),
            commands: RefCell::default(),
            wake_requested: Notify::new(),
            watch_requested: Notify::new(),
            is_watched: Cell::new(false),
            has_forwarded: Cell::new(false),
            scoreboard,
            is_timed,
            is_app_slow: Cell::new(false),
        })
    }

    /// A new id.
    pub(crate) fn next_id() -> ExchangeId {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    // ---- calls ----

    /// An exchange for a call of the peer with this [key](crate::connections::table::Slot::key), and a place for its answer.
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

    /// Hands an event to the application.
    pub(crate) fn push(&self, event: Event) -> Result<(), PushError> {
        match self.hand_over(event)? {
            WakeUp::NotNeeded => {}
            WakeUp::Watch => self.watch_progress(),
            WakeUp::AfterBatch => self.wake_requested.notify_one(),
        }
        Ok(())
    }

    fn hand_over(&self, mut event: Event) -> Result<WakeUp, PushError> {
        let Some(board) = self.scoreboard.as_deref().filter(|_| event.is_request()) else {
            return self.application.handle_event(event);
        };
        if let Event::Request(exchange) | Event::Head(exchange) = &mut event {
            if self.is_timed {
                exchange.set_queued_at(now());
            }
        }
        // Before: it may have been taken when this returns.
        board.count_handed();
        self.application.handle_event(event).inspect_err(|_| board.uncount_handed())
    }

    /// The answer to a call, when it has come.
    pub(crate) fn take_decision(&self, slot: u32) -> Option<AppDecision> {
        self.in_flight.take_decision(slot)
    }

    /// Nobody waits for the answer of a call any more; one that had come is returned.
    pub(crate) fn abandon(&self, slot: u32) -> Option<Box<Exchange>> {
        let (id, decision) = self.in_flight.close(slot);
        match decision? {
            AppDecision::Respond(exchange) | AppDecision::ReadBody(exchange) => Some(exchange),
            AppDecision::StreamBody(listener) => {
                self.notify(Event::BodyEnd { call: id, listener, reason: StreamEnd::Client });
                None
            }
        }
    }

    /// Ends an exchange: closes its place and takes it back.
    pub(crate) fn finish(&self, exchange: Box<Exchange>) {
        self.in_flight.close(exchange.slot());
        self.pool.put_back(exchange);
    }

    /// Takes an exchange back whose client has gone. A WebSocket that was accepted in vain has ended: each one that
    /// is accepted does, once; and so has a stream.
    pub(crate) fn discard_exchange(&self, exchange: Box<Exchange>) {
        if is_accepted(&exchange) {
            let (socket, listener) = (exchange.id(), exchange.listener());
            if let Some(backlog) = exchange.backlog() {
                backlog.end();
            }
            self.notify(Event::Closed {
                socket,
                listener,
                code: 1006,
                reason: Box::default(),
                is_clean: false,
            });
        } else if let ResponseBody::Stream(stream) = exchange.response().body() {
            stream.flow.end();
            let (stream, listener) = (exchange.id(), exchange.listener());
            self.notify(Event::StreamEnded { stream, listener, reason: StreamEnd::Client });
        }
        self.pool.put_back(exchange);
    }

    /// How many calls are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    // ---- WebSockets ----

    /// Hands over an event that is never refused.
    pub(crate) fn notify(&self, event: Event) {
        // Only requests are.
        let _ = self.push(event);
    }

    /// Takes the buffer of a message back that nobody is there to be sent.
    pub(crate) fn recycle_payload(&self, payload: Payload) {
        if let Payload::Pooled(buffer) = payload {
            self.application.recycle_buffer(buffer);
        }
    }

    // ---- what comes down ----

    /// Carries out what the application has sent, one command after the other; says whether there was anything.
    pub(crate) fn run_commands(&self, mut carry_out: impl FnMut(Command)) -> bool {
        let mut commands = self.commands.take();
        self.application.take_commands(&mut commands);
        let was_any = !commands.is_empty();
        commands.drain(..).for_each(&mut carry_out);
        self.commands.replace(commands);
        was_any
    }

    /// Whether the call of an exchange still waits for it.
    pub(crate) fn is_awaited(&self, exchange: &Exchange) -> bool {
        self.in_flight.is_awaited(exchange)
    }

    /// Gives an answer to its call: the key of the peer to be woken; `None` when nobody waits any more.
    pub(crate) fn resolve(&self, decision: AppDecision) -> Option<usize> {
        let (slot, id) = decision.exchange().map(|exchange| (exchange.slot(), exchange.id()))?;
        match self.in_flight.resolve(slot, id, decision) {
            Ok((waiter, before)) => {
                // It has answered before its peer could begin to read the body.
                if let Some(AppDecision::StreamBody(listener)) = before {
                    self.notify(Event::BodyEnd { call: id, listener, reason: StreamEnd::Done });
                }
                Some(waiter)
            }
            Err(AppDecision::Respond(unwanted) | AppDecision::ReadBody(unwanted)) => {
                self.discard_exchange(unwanted);
                None
            }
            Err(AppDecision::StreamBody(_)) => None,
        }
    }

    /// The application has the body of a call come in pieces: the key of the peer to be woken; `None` when nobody waits any
    /// more.
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
            self.notify(Event::BodyEnd { call, listener, reason: StreamEnd::Client });
        }
        waiter
    }

    // ---- waking ----

    /// Has somebody look, in a millisecond, whether the application comes back.
    pub(crate) fn watch_progress(&self) {
        if !self.is_watched.replace(true) {
            self.watch_requested.notify_one();
        }
    }

    /// Whether anything has been passed on to another process since this was last asked.
    pub(crate) fn take_has_forwarded(&self) -> bool {
        self.has_forwarded.take() | self.application.take_has_forwarded()
    }

    /// It has come back, or there is nothing for it to come for.
    pub(crate) fn end_watch(&self) {
        self.is_watched.set(false);
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Whether this is a handshake that the application has accepted.
pub(crate) fn is_accepted(exchange: &Exchange) -> bool {
    exchange.is_upgrade() && exchange.response().status() == 101
}

/// Whether this is a reply that comes in pieces.
pub(crate) fn is_streamed(exchange: &Exchange) -> bool {
    matches!(exchange.response().body(), ResponseBody::Stream(_))
}
