//! What happens when a share of the [budget](rookery_exchange::Budget) is used up.
//!
//! Whoever needs more than is left is refused, unless somebody holds more: then that one goes. So whoever holds little is
//! served however full it is, and of those that hold the same, the newest goes. HTTP is answered with 503, a WebSocket
//! ends with 1013; a reply under way, which cannot be answered any more, is cut off. A request that the application has
//! is never ended: what it holds would stay with the application.
//!
//! Looking for the largest costs a look over all connections, and happens only when a share is used up.

use std::cell::Cell;

use rookery_exchange::{Charge, Exchange, Share};

use crate::connection::Connection;
use crate::hub::Hub;
use crate::rejection::Rejection;

/// What every connection is charged: a buffer to read into and one to write from (8 KiB each, hyper's first), a request
/// and a reply of as much, or a WebSocket's queue.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

/// What of a buffer, a request, a reply or a queue is not charged again, because every connection is.
pub(crate) const FREE: usize = 8 << 10;

/// A WebSocket's queue is charged in steps of this: it grows and shrinks with every message.
pub(crate) const QUEUE_STEP: usize = 64 << 10;

/// A compressor with its window, a piece that goes in and one that comes out.
pub(crate) const COMPRESSOR_BYTES: usize = 512 << 10;

/// A target, its folder's options and the conditions of a request for a static file.
const LOOKUP_BYTES: usize = 1 << 10;

/// A reply counts as no more than this part of its share: its size is the application's choice, and one that is larger
/// than the share must not be impossible.
const LARGEST_REPLY: usize = 4;

/// Bytes of holders that have been told to go and have not gone yet: they are still charged.
#[derive(Debug, Default)]
pub(crate) struct Leaving([Cell<usize>; Share::COUNT]);

impl Leaving {
    pub(crate) fn add(&self, share: Share, bytes: usize) {
        let cell = &self.0[share as usize];
        cell.set(cell.get() + bytes);
    }

    pub(crate) fn remove(&self, share: Share, bytes: usize) {
        let cell = &self.0[share as usize];
        cell.set(cell.get() - bytes);
    }
}

impl Hub {
    /// Makes room for a holder of `has` bytes that needs `more`. `false` when it is to be refused.
    pub(crate) fn make_room(&self, share: Share, has: usize, more: usize) -> bool {
        loop {
            let used = self.budget.used(share).saturating_sub(self.leaving.0[share as usize].get());
            if used.saturating_add(more) <= self.budget.limit(share) {
                return true;
            }
            if !self.end_largest(share, has.saturating_add(more)) {
                return false;
            }
        }
    }

    /// Charges a compressor and what it works on; `None` when there is no room for it.
    pub(crate) fn hold_compressor(&self, bytes: usize) -> Option<Charge> {
        self.make_room(Share::Compressors, 0, bytes).then(|| self.charge(Share::Compressors, bytes))
    }

    /// Charges what a file that is looked for holds, until a thread has had time for it.
    pub(crate) fn hold_lookup(&self) -> Result<Charge, Rejection> {
        if self.make_room(Share::Requests, 0, LOOKUP_BYTES) {
            Ok(self.charge(Share::Requests, LOOKUP_BYTES))
        } else {
            Err(Rejection::Overload)
        }
    }

    /// Charges what there is room for.
    pub(crate) fn charge(&self, share: Share, bytes: usize) -> Charge {
        let charge = Charge::new(&self.budget, share);
        charge.set(bytes);
        charge
    }

    /// Ends the largest holder of a share, if it has more than `least`.
    fn end_largest(&self, share: Share, least: usize) -> bool {
        match share {
            Share::Connections | Share::Requests | Share::Replies => {
                let connections = self.connections.borrow();
                let held = connections.iter().flatten().map(|one| (one.held(share), one.serial, one));
                match held.max_by_key(|(held, serial, _)| (*held, *serial)) {
                    Some((held, _, one)) if held > least => {
                        one.evict(share, held);
                        true
                    }
                    _ => false,
                }
            }
            Share::Messages | Share::Queues => {
                let sockets = self.sockets.borrow();
                let held = sockets.values().map(|one| (one.held(share), one));
                match held.max_by_key(|(held, one)| (*held, one.id)) {
                    Some((held, one)) if held > least => {
                        one.evict(self, share);
                        true
                    }
                    _ => false,
                }
            }
            Share::Compressors | Share::Pool => false,
        }
    }
}

impl Connection {
    /// Charges what the request under way holds in its exchange, and makes room for `also` beside it, which whoever has
    /// that charges.
    pub(crate) fn hold_request(&self, exchange: &mut Exchange, also: usize) -> Result<(), Rejection> {
        let own = exchange.capacity();
        let (has, needs) = (self.request_held.get(), own + also);
        if needs <= has {
            return Ok(());
        }
        if !self.hub.make_room(Share::Requests, has, needs - has) {
            return Err(Rejection::Overload);
        }
        self.request_held.set(needs);
        exchange.charge(&self.hub.budget, own);
        Ok(())
    }

    /// What is held beside the exchange has become less.
    pub(crate) fn let_go_beside(&self, exchange: &Exchange, also: usize) {
        self.request_held.set(self.request_held.get().min((exchange.capacity() + also).max(FREE)));
    }

    /// Charges a reply of `len` bytes until it has been written.
    pub(crate) fn hold_reply(&self, len: usize) -> Result<(), Rejection> {
        if len <= FREE {
            return Ok(());
        }
        let (has, more) =
            (self.reply.bytes(), len.min(self.hub.budget.limit(Share::Replies) / LARGEST_REPLY));
        if !self.hub.make_room(Share::Replies, has, more) {
            return Err(Rejection::Overload);
        }
        self.reply.set(has + more);
        Ok(())
    }

    /// Charges a buffer of `bytes` to read into. `false` when the connection ends for want of it.
    pub(crate) fn hold_buffer(&self, bytes: usize) -> bool {
        let more = bytes - self.buffer.replace(bytes);
        let has = self.charge.bytes();
        if !self.hub.make_room(Share::Connections, has, more) {
            self.overload();
            return false;
        }
        self.charge.set(has + more);
        true
    }
}
