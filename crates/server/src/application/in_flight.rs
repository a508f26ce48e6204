//! ExchangePool that the application has, and who waits for them.

use std::cell::RefCell;

use rookery_exchange::{Exchange, ExchangeId, ListenerId};

/// A table of exchanges in flight; an exchange carries the number of its entry.
#[derive(Debug, Default)]
pub(super) struct InFlightTable {
    slots: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

/// Where one call waits. It is found by its peer's key: a waker kept here would keep the memory of a task that has ended,
/// and an idle WebSocket with it.
#[derive(Debug, Default)]
struct Slot {
    id: ExchangeId,
    waiter: usize,
    decision: Option<AppDecision>,
}

/// What the application did with an exchange.
#[derive(Debug)]
pub(crate) enum AppDecision {
    /// It has its reply.
    Respond(Box<Exchange>),
    /// The body is to be read.
    ReadBody(Box<Exchange>),
    /// The application keeps it, and has its body come in pieces.
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
    /// Opens a place for an exchange of the peer with this [key](crate::connections::table::Slot::key).
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

    /// Closes the place of an exchange, whose id is returned with what decision meanwhile.
    pub(super) fn close(&self, slot: u32) -> (ExchangeId, Option<AppDecision>) {
        let mut slots = self.slots.borrow_mut();
        let entry = &mut slots.all[slot as usize];
        let id = std::mem::take(&mut entry.id);
        let decision = entry.decision.take();
        slots.free.push(slot);
        (id, decision)
    }

    /// Whether somebody waits for an exchange.
    pub(super) fn is_awaited(&self, exchange: &Exchange) -> bool {
        let slots = self.slots.borrow();
        slots.all.get(exchange.slot() as usize).is_some_and(|entry| entry.id == exchange.id())
    }

    /// The application answers: the key of the peer that waits for it, to be woken, with what had come and was not taken yet; or
    /// the answer when none waits any more.
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

    /// The answer, when it has come.
    pub(super) fn take_decision(&self, slot: u32) -> Option<AppDecision> {
        self.slots.borrow_mut().all[slot as usize].decision.take()
    }

    /// How many exchanges are in flight.
    pub(super) fn len(&self) -> usize {
        let slots = self.slots.borrow();
        slots.all.len() - slots.free.len()
    }
}
