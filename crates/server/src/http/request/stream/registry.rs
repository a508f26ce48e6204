//! What applications have not dealt with of the bodies that they receive in pieces.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Charge, ExchangeId};

use crate::connections::admission::UNCHARGED_BYTES;

/// What a piece counts as at least: an event, a buffer of its own and an object of the application's, of which those of a body in
/// pieces of a byte would take a hundred times its bytes.
const PIECE: usize = 4 << 10;

/// What a piece counts as.
pub(crate) fn cost(bytes: usize) -> usize {
    bytes.max(PIECE)
}

/// The bodies that are being received, by the ids of their calls.
#[derive(Debug, Default)]
pub(crate) struct RequestStreams(RefCell<HashMap<ExchangeId, Rc<UnprocessedChunks>>>);

/// What the application has not dealt with of one of them.
#[derive(Debug)]
pub(crate) struct UnprocessedChunks {
    /// The key of its connection among the peers.
    pub(crate) peer: usize,
    /// What its pieces [cost].
    pub(crate) cost: Cell<usize>,
    pub(crate) charge: Charge,
}

impl RequestStreams {
    pub(crate) fn open(&self, id: ExchangeId, waiting: &Rc<UnprocessedChunks>) {
        self.0.borrow_mut().insert(id, Rc::clone(waiting));
    }

    pub(crate) fn forget(&self, id: ExchangeId) {
        let forgotten = self.0.borrow_mut().remove(&id);
        drop(forgotten);
    }

    /// The application has dealt with a piece of a body: the key of the peer to be woken, which may read on.
    pub(crate) fn has_taken(&self, id: ExchangeId, bytes: usize) -> Option<usize> {
        let waiting = Rc::clone(self.0.borrow().get(&id)?);
        waiting.cost.set(waiting.cost.get().saturating_sub(cost(bytes)));
        waiting.charge();
        Some(waiting.peer)
    }
}

impl UnprocessedChunks {
    /// What is charged for it.
    pub(crate) fn needs(&self) -> usize {
        if self.cost.get() <= UNCHARGED_BYTES { 0 } else { self.cost.get() }
    }

    pub(crate) fn charge(&self) {
        self.charge.set(self.needs());
    }
}
