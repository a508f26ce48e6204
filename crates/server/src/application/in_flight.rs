//! The table of requests in flight to the application.

use std::cell::RefCell;

use rookery_exchange::{Exchange, ExchangeId, ListenerId};

/// The table of requests in flight. Each exchange carries the number of its slot.
#[derive(Debug, Default)]
pub(super) struct InFlightTable {
    slots: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

/// The slot of one request. The waiting connection is found by its key and not by a waker, because
/// a waker stored here would keep the memory of an ended task alive, and an idle WebSocket with it.
#[derive(Debug, Default)]
struct Slot {
    id: ExchangeId,
    waiter: usize,
    decision: Option<AppDecision>,
}

/// The application's decision on a request.
#[derive(Debug)]
pub(crate) enum AppDecision {
    /// The application has written the response.
    Respond(Box<Exchange>),
    /// The application has seen the head, and wants the body to be read.
    ReadBody(Box<Exchange>),
    /// The application keeps the exchange, and wants the body to be streamed.
    StreamBody(ListenerId),
}

impl AppDecision {
    pub(super) fn exchange(&self) -> Option<&Exchange> {
        match self {
            AppDecision::Respond(exchange) | AppDecision::ReadBody(exchange) => Some(exchange),
            AppDecision::StreamBody(_) => None,
        }
    }
}

impl InFlightTable {
    /// Opens a slot for an exchange of the connection with this
    /// [key](crate::connections::table::Slot::key).
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

    /// Closes a slot. Returns the id of its exchange, and the decision that was not taken yet.
    pub(super) fn close(&self, slot: u32) -> (ExchangeId, Option<AppDecision>) {
        let mut slots = self.slots.borrow_mut();
        let entry = &mut slots.all[slot as usize];
        let id = std::mem::take(&mut entry.id);
        let decision = entry.decision.take();
        slots.free.push(slot);
        (id, decision)
    }

    /// Returns true if a connection waits for this exchange.
    pub(super) fn is_awaited(&self, exchange: &Exchange) -> bool {
        let slots = self.slots.borrow();
        slots.all.get(exchange.slot() as usize).is_some_and(|entry| entry.id == exchange.id())
    }

    /// Stores a decision. Returns the key of the waiting connection and the previous decision, if
    /// that was not taken yet.
    ///
    /// # Errors
    /// Returns the decision if no connection waits for it any more.
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

    /// Takes the decision of a slot, if it has been made.
    pub(super) fn take_decision(&self, slot: u32) -> Option<AppDecision> {
        self.slots.borrow_mut().all[slot as usize].decision.take()
    }

    /// Returns the number of requests in flight.
    pub(super) fn len(&self) -> usize {
        let slots = self.slots.borrow();
        slots.all.len() - slots.free.len()
    }
}
