//! Exchanges that the application has, and who waits for them.

use std::cell::RefCell;

use rookery_exchange::{Exchange, ExchangeId, ListenerId};

/// A table of exchanges in flight; an exchange carries the number of its place.
#[derive(Debug, Default)]
pub(super) struct Answers {
    places: RefCell<Places>,
}

#[derive(Debug, Default)]
struct Places {
    all: Vec<Awaited>,
    free: Vec<u32>,
}

/// Where one call waits. It is found by its peer's key: a waker kept here would keep the memory of a task that has ended,
/// and an idle WebSocket with it.
#[derive(Debug, Default)]
struct Awaited {
    id: ExchangeId,
    peer: usize,
    came: Option<Answer>,
}

/// What the application did with an exchange.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It has its reply.
    Reply(Box<Exchange>),
    /// The body is to be read.
    Proceed(Box<Exchange>),
    /// The application keeps it, and has its body come in pieces.
    Receive(ListenerId),
}

impl Answer {
    pub(super) fn exchange(&self) -> Option<&Exchange> {
        match self {
            Answer::Reply(exchange) | Answer::Proceed(exchange) => Some(exchange),
            Answer::Receive(_) => None,
        }
    }
}

impl Answers {
    /// Opens a place for an exchange of the peer with this [key](crate::connections::table::Slot::key).
    pub(super) fn open(&self, id: ExchangeId, peer: usize) -> u32 {
        let mut places = self.places.borrow_mut();
        let slot = match places.free.pop() {
            Some(slot) => slot,
            None => {
                places.all.push(Awaited::default());
                u32::try_from(places.all.len() - 1).expect("fewer than 2^32 requests in flight")
            }
        };
        let place = &mut places.all[slot as usize];
        (place.id, place.peer) = (id, peer);
        slot
    }

    /// Closes the place of an exchange, whose id is returned with what came meanwhile.
    pub(super) fn close(&self, slot: u32) -> (ExchangeId, Option<Answer>) {
        let mut places = self.places.borrow_mut();
        let place = &mut places.all[slot as usize];
        let id = std::mem::take(&mut place.id);
        let came = place.came.take();
        places.free.push(slot);
        (id, came)
    }

    /// Whether somebody waits for an exchange.
    pub(super) fn is_awaited(&self, exchange: &Exchange) -> bool {
        let places = self.places.borrow();
        places.all.get(exchange.slot() as usize).is_some_and(|place| place.id == exchange.id())
    }

    /// The application answers: the key of the peer that waits for it, to be woken, with what had come and was not taken yet; or
    /// the answer when none waits any more.
    pub(super) fn put(
        &self,
        slot: u32,
        id: ExchangeId,
        answer: Answer,
    ) -> Result<(usize, Option<Answer>), Answer> {
        let mut places = self.places.borrow_mut();
        match places.all.get_mut(slot as usize) {
            Some(place) if place.id == id => Ok((place.peer, place.came.replace(answer))),
            _ => Err(answer),
        }
    }

    /// The answer, when it has come.
    pub(super) fn take(&self, slot: u32) -> Option<Answer> {
        self.places.borrow_mut().all[slot as usize].came.take()
    }

    /// How many exchanges are in flight.
    pub(super) fn len(&self) -> usize {
        let places = self.places.borrow();
        places.all.len() - places.free.len()
    }
}
