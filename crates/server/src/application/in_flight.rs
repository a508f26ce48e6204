//! The table of requests that were passed to the application and not answered yet.

use std::cell::RefCell;

use rookery_exchange::{Exchange, ExchangeId, ListenerId};

/// The table of requests that were passed to the application and not answered yet. Each request
/// occupies one slot, whose number is stored in the request's exchange (the object of the request
/// and its response).
#[derive(Debug, Default)]
pub(super) struct InFlightTable {
    slots: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

/// The entry of one request in the in-flight table. It stores the connection-table key of the
/// connection that waits for the response.
// It stores no task waker, because a waker would keep the memory of an ended task, and of an idle
// WebSocket, allocated.
#[derive(Debug, Default)]
struct Slot {
    id: ExchangeId,
    waiter: usize,
    decision: Option<AppDecision>,
}

/// The application's decision on a request: to respond, to have the server read the whole body
/// first, or to receive the body as a stream.
#[derive(Debug)]
pub(crate) enum AppDecision {
    /// The application has written the response.
    Respond(Box<Exchange>),
    /// The application has seen the head of the request, and wants the server to read the whole
    /// body.
    ReadBody(Box<Exchange>),
    /// The application keeps the exchange, and wants to receive the request body as a stream.
    /// Contains the id of the listener that received the request.
    StreamBody(ListenerId),
    /// The application's queue was full, and has dropped the request in favour of a request of
    /// another client.
    Displaced(Box<Exchange>),
}

impl AppDecision {
    pub(super) fn exchange(&self) -> Option<&Exchange> {
        match self {
            AppDecision::Respond(exchange)
            | AppDecision::ReadBody(exchange)
            | AppDecision::Displaced(exchange) => Some(exchange),
            AppDecision::StreamBody(_) => None,
        }
    }
}

impl InFlightTable {
    /// Opens a slot in the table for an exchange, and returns the slot's number. `waiter` is the
    /// [key](crate::connections::table::Slot::key) of the connection that waits for the response.
    pub(super) fn open(&self, id: ExchangeId, waiter: usize) -> u32 {
        let mut slots = self.slots.borrow_mut();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                slots.all.push(Slot::default());
                u32::try_from(slots.all.len() - 1).expect("fewer than 2^32 requests in flight")
            }
        };
        let entry = &mut slots.all[slot as usize];
        (entry.id, entry.waiter) = (id, waiter);
        slot
    }

    /// Closes the slot of a request. Returns the id of the request's exchange, and the
    /// application's decision on the request if no connection has taken that decision yet.
    pub(super) fn close(&self, slot: u32) -> (ExchangeId, Option<AppDecision>) {
        let mut slots = self.slots.borrow_mut();
        let entry = &mut slots.all[slot as usize];
        let id = std::mem::take(&mut entry.id);
        let decision = entry.decision.take();
        slots.free.push(slot);
        (id, decision)
    }

    /// Returns the connection-table key of the connection that waits for the response of this
    /// exchange, or `None` if no connection waits for it any more.
    pub(super) fn waiter(&self, exchange: &Exchange) -> Option<usize> {
        let slots = self.slots.borrow();
        let entry = slots.all.get(exchange.slot() as usize)?;
        (entry.id == exchange.id()).then_some(entry.waiter)
    }

    /// Stores the application's decision on a request. Returns the connection-table key of the
    /// connection that waits for the decision, and the previous decision if the connection has not
    /// taken that yet.
    ///
    /// # Errors
    /// Returns `decision` if no connection waits for a decision on the request any more.
    pub(super) fn resolve(
        &self,
        slot: u32,
        id: ExchangeId,
        decision: AppDecision,
    ) -> Result<(usize, Option<AppDecision>), AppDecision> {
        let mut slots = self.slots.borrow_mut();
        match slots.all.get_mut(slot as usize) {
            Some(entry) if entry.id == id => Ok((entry.waiter, entry.decision.replace(decision))),
            _ => Err(decision),
        }
    }

    /// Takes the application's decision (to respond, or how to receive the body) on the request in
    /// this slot. Returns `None` if the application has not decided yet.
    pub(super) fn take_decision(&self, slot: u32) -> Option<AppDecision> {
        self.slots.borrow_mut().all[slot as usize].decision.take()
    }

    /// Returns the number of requests that were passed to the application and not answered yet.
    pub(super) fn len(&self) -> usize {
        let slots = self.slots.borrow();
        slots.all.len() - slots.free.len()
    }
}
