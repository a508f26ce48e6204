//! Exchanges that the application has, and the tasks that wait for them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rookery_exchange::{Exchange, ExchangeId};

use crate::connection::Connection;

/// A table of places; an exchange carries the number of its place.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    places: RefCell<Places>,
}

#[derive(Debug, Default)]
struct Places {
    all: Vec<Place>,
    free: Vec<u32>,
}

/// Where one task waits. It is found by its connection's key: a waker kept here would keep the memory of a task that
/// has ended, and an idle WebSocket with it.
#[derive(Debug, Default)]
struct Place {
    id: ExchangeId,
    connection: usize,
    came: Option<(Box<Exchange>, bool)>,
}

impl Pending {
    /// Opens a place for an exchange of the connection with this key ([`Hub::join`](crate::hub::Hub::join)).
    pub(crate) fn open(&self, id: ExchangeId, connection: usize) -> u32 {
        let mut places = self.places.borrow_mut();
        let slot = match places.free.pop() {
            Some(slot) => slot,
            None => {
                places.all.push(Place::default());
                u32::try_from(places.all.len() - 1).expect("fewer than 2^32 requests in flight")
            }
        };
        let place = &mut places.all[slot as usize];
        (place.id, place.connection) = (id, connection);
        slot
    }

    /// Closes the place of an exchange; one that came back meanwhile is returned.
    pub(crate) fn close(&self, slot: u32) -> Option<Box<Exchange>> {
        let mut places = self.places.borrow_mut();
        let place = &mut places.all[slot as usize];
        place.id = 0;
        let came = place.came.take();
        places.free.push(slot);
        came.map(|(exchange, _)| exchange)
    }

    /// The key of the connection that waits for an exchange.
    pub(crate) fn waiting(&self, exchange: &Exchange) -> Option<usize> {
        let places = self.places.borrow();
        let place = places.all.get(exchange.slot() as usize)?;
        (place.id == exchange.id()).then_some(place.connection)
    }

    /// The application gives an exchange back: the key of the connection that waits for it, to be woken, or the
    /// exchange when none does any more.
    pub(crate) fn hand_back(&self, exchange: Box<Exchange>, proceeds: bool) -> Result<usize, Box<Exchange>> {
        let mut places = self.places.borrow_mut();
        match places.all.get_mut(exchange.slot() as usize) {
            Some(place) if place.id == exchange.id() => {
                place.came = Some((exchange, proceeds));
                Ok(place.connection)
            }
            _ => Err(exchange),
        }
    }

    /// How many exchanges are in flight.
    pub(crate) fn len(&self) -> usize {
        let places = self.places.borrow();
        places.all.len() - places.free.len()
    }

    /// Keeps the place of an exchange whose body is being read: dropped before [`Guard::keep`], it closes it.
    pub(crate) fn guard<'a>(&'a self, exchange: &Exchange) -> Guard<'a> {
        Guard { pending: self, slot: exchange.slot(), is_kept: false }
    }

    fn take(&self, slot: u32) -> Option<(Box<Exchange>, bool)> {
        self.places.borrow_mut().all[slot as usize].came.take()
    }
}

/// See [`Pending::guard`].
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    pending: &'a Pending,
    slot: u32,
    is_kept: bool,
}

impl Guard<'_> {
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.pending.close(self.slot);
        }
    }
}

/// What the application did with an exchange.
pub(crate) enum Answer {
    /// It is to be sent.
    Reply(Box<Exchange>),
    /// The body is to be read.
    Proceed(Box<Exchange>),
    /// The client has reset the connection.
    Gone,
}

/// Waits for the application. Dropped before, it tells the application that nobody waits for its answer.
#[derive(Debug)]
pub(crate) struct Wait {
    connection: Rc<Connection>,
    slot: u32,
    departed: Arc<AtomicBool>,
    is_over: bool,
}

impl Wait {
    pub(crate) fn new(connection: &Rc<Connection>, exchange: &Exchange) -> Wait {
        Wait {
            connection: Rc::clone(connection),
            slot: exchange.slot(),
            departed: exchange.departed_flag(),
            is_over: false,
        }
    }

    /// The exchange was not handed over after all.
    pub(crate) fn cancel(mut self) {
        self.is_over = true;
    }
}

impl Future for Wait {
    type Output = Answer;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        // Woken by the connection's own waker, which it keeps while it is driven.
        if let Some((exchange, proceeds)) = self.connection.hub.pending.take(self.slot) {
            self.is_over = true;
            return Poll::Ready(if proceeds { Answer::Proceed(exchange) } else { Answer::Reply(exchange) });
        }
        if self.connection.is_reset(cx) { Poll::Ready(Answer::Gone) } else { Poll::Pending }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if !self.is_over {
            self.departed.store(true, Ordering::Release);
            let hub = &self.connection.hub;
            if let Some(exchange) = hub.pending.close(self.slot) {
                hub.disown(exchange);
            }
        }
    }
}
