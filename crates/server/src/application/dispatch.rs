//! What the tasks of an I/O thread ask of the application, and what is in flight to it and back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rookery_exchange::{
    Budget, Command, Departure, Event, Exchange, ExchangeId, ListenerId, Payload, PushError,
    Pushed, ReplyBody,
};
use rookery_worker::{Scoreboard, now};
use tokio::sync::Notify;

pub(crate) use super::answers::Answer;
use super::answers::Answers;
use super::application::Application;
use super::exchanges::Exchanges;

/// Ids are unique in the process, so that a WebSocket of an earlier server is not taken for one of a later.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The application, with what it has been asked.
pub(crate) struct Dispatch {
    pub(crate) application: Box<dyn Application>,
    answers: Answers,
    exchanges: Exchanges,
    commands: RefCell<VecDeque<Command>>,
    /// The application is to be woken, after the tasks that are ready now.
    pub(crate) settle: Notify,
    /// Somebody has to look whether a busy application comes back.
    pub(crate) look: Notify,
    is_looked_after: Cell<bool>,
    /// Whether anything has been passed on to another process since the thread was about to sleep.
    pub(crate) has_passed_on: Cell<bool>,
    /// Where a supervisor reads what the application has to do.
    pub(crate) scoreboard: Option<Arc<Scoreboard>>,
    /// Whether requests are told when they were handed over ([`Exchange::times`]).
    is_timed: bool,
    /// Whether it takes longer than a millisecond.
    pub(crate) is_slow: Cell<bool>,
}

impl Dispatch {
    pub(crate) fn new(
        application: Box<dyn Application>,
        pool_bytes: usize,
        budget: Arc<Budget>,
        scoreboard: Option<Arc<Scoreboard>>,
        is_timed: bool,
    ) -> Rc<Dispatch> {
        Rc::new(Dispatch {
            application,
            answers: Answers::default(),
            exchanges: Exchanges::new(pool_bytes, budget),
            commands: RefCell::default(),
            settle: Notify::new(),
            look: Notify::new(),
            is_looked_after: Cell::new(false),
            has_passed_on: Cell::new(false),
            scoreboard,
            is_timed,
            is_slow: Cell::new(false),
        })
    }

    /// A new id.
    pub(crate) fn next_id() -> ExchangeId {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    // ---- calls ----

    /// An exchange for a call of the peer with this [key](crate::connections::table::Slot::key), and a place for its answer.
    pub(crate) fn begin(&self, id: ExchangeId, listener: ListenerId, peer: usize) -> Box<Exchange> {
        let mut exchange = self.exchanges.take();
        exchange.begin(id, listener, self.answers.open(id, peer));
        exchange
    }

    /// Hands an event to the application.
    pub(crate) fn push(&self, event: Event) -> Result<(), PushError> {
        match self.hand(event)? {
            Pushed::Quiet => {}
            Pushed::Nudge => self.look_after(),
            Pushed::Settle => self.settle.notify_one(),
        }
        Ok(())
    }

    fn hand(&self, mut event: Event) -> Result<Pushed, PushError> {
        let Some(board) = self.scoreboard.as_deref().filter(|_| event.is_call()) else {
            return self.application.take(event);
        };
        if let Event::Request(exchange) | Event::Head(exchange) = &mut event {
            if self.is_timed {
                exchange.set_handed_at(now());
            }
        }
        // Before: it may have been taken when this returns.
        board.hand();
        self.application.take(event).inspect_err(|_| board.take_back())
    }

    /// The answer to a call, when it has come.
    pub(crate) fn answer(&self, slot: u32) -> Option<Answer> {
        self.answers.take(slot)
    }

    /// Nobody waits for the answer of a call any more; one that had come is returned.
    pub(crate) fn abandon(&self, slot: u32) -> Option<Box<Exchange>> {
        let (id, came) = self.answers.close(slot);
        match came? {
            Answer::Reply(exchange) | Answer::Proceed(exchange) => Some(exchange),
            Answer::Receive(listener) => {
                self.tell(Event::BodyEnd { call: id, listener, reason: Departure::Client });
                None
            }
        }
    }

    /// Ends an exchange: closes its place and takes it back.
    pub(crate) fn finish(&self, exchange: Box<Exchange>) {
        self.answers.close(exchange.slot());
        self.exchanges.give(exchange);
    }

    /// Takes an exchange back whose client has gone. A WebSocket that was accepted in vain has ended: each one that
    /// is accepted does, once; and so has a stream.
    pub(crate) fn disown(&self, exchange: Box<Exchange>) {
        if is_accepted(&exchange) {
            let (socket, listener) = (exchange.id(), exchange.listener());
            if let Some(backlog) = exchange.backlog() {
                backlog.end();
            }
            self.tell(Event::Closed {
                socket,
                listener,
                code: 1006,
                reason: Box::default(),
                is_clean: false,
            });
        } else if let ReplyBody::Stream(stream) = exchange.reply().body() {
            stream.flow.end();
            let (stream, listener) = (exchange.id(), exchange.listener());
            self.tell(Event::Departed { stream, listener, reason: Departure::Client });
        }
        self.exchanges.give(exchange);
    }

    /// How many calls are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.answers.len()
    }

    // ---- WebSockets ----

    /// Hands over an event that is never refused.
    pub(crate) fn tell(&self, event: Event) {
        // Only requests are.
        let _ = self.push(event);
    }

    /// Takes the buffer of a message back that nobody is there to be sent.
    pub(crate) fn discard(&self, payload: Payload) {
        if let Payload::Pooled(buffer) = payload {
            self.application.recycle(buffer);
        }
    }

    // ---- what comes down ----

    /// Carries out what the application has sent, one command after the other; says whether there was anything.
    pub(crate) fn deliver(&self, mut carry_out: impl FnMut(Command)) -> bool {
        let mut commands = self.commands.take();
        self.application.commands(&mut commands);
        let was_any = !commands.is_empty();
        commands.drain(..).for_each(&mut carry_out);
        self.commands.replace(commands);
        was_any
    }

    /// Whether the call of an exchange still waits for it.
    pub(crate) fn is_awaited(&self, exchange: &Exchange) -> bool {
        self.answers.is_awaited(exchange)
    }

    /// Gives an answer to its call: the key of the peer to be woken; `None` when nobody waits any more.
    pub(crate) fn put(&self, answer: Answer) -> Option<usize> {
        let (slot, id) = answer.exchange().map(|exchange| (exchange.slot(), exchange.id()))?;
        match self.answers.put(slot, id, answer) {
            Ok((peer, before)) => {
                // It has answered before its peer could begin to read the body.
                if let Some(Answer::Receive(listener)) = before {
                    self.tell(Event::BodyEnd { call: id, listener, reason: Departure::Done });
                }
                Some(peer)
            }
            Err(Answer::Reply(unwanted) | Answer::Proceed(unwanted)) => {
                self.disown(unwanted);
                None
            }
            Err(Answer::Receive(_)) => None,
        }
    }

    /// The application has the body of a call come in pieces: the key of the peer to be woken; `None` when nobody waits any
    /// more.
    pub(crate) fn receive(
        &self,
        slot: u32,
        call: ExchangeId,
        listener: ListenerId,
    ) -> Option<usize> {
        let peer =
            self.answers.put(slot, call, Answer::Receive(listener)).ok().map(|(peer, _)| peer);
        if peer.is_none() {
            self.tell(Event::BodyEnd { call, listener, reason: Departure::Client });
        }
        peer
    }

    // ---- waking ----

    /// Has somebody look, in a millisecond, whether the application comes back.
    pub(crate) fn look_after(&self) {
        if !self.is_looked_after.replace(true) {
            self.look.notify_one();
        }
    }

    /// Whether anything has been passed on to another process since this was last asked.
    pub(crate) fn has_passed_on(&self) -> bool {
        self.has_passed_on.take() | self.application.has_passed_on()
    }

    /// It has come back, or there is nothing for it to come for.
    pub(crate) fn is_well(&self) {
        self.is_looked_after.set(false);
    }
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

/// Whether this is a handshake that the application has accepted.
pub(crate) fn is_accepted(exchange: &Exchange) -> bool {
    exchange.is_upgrade() && exchange.reply().status() == 101
}

/// Whether this is a reply that comes in pieces.
pub(crate) fn is_streamed(exchange: &Exchange) -> bool {
    matches!(exchange.reply().body(), ReplyBody::Stream(_))
}
