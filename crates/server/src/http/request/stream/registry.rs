//! What applications have not dealt with of the bodies that they receive in pieces.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use rookery_exchange::{Charge, ExchangeId};

use crate::connections::admission::UNCHARGED_BYTES;

/// What a piece counts as at least: an event, a buffer of its own and an object of the application's, of which those of a body in
/// pieces of a byte would take a hundred times its bytes.
const MIN_CHUNK_COST: usize = 4 << 10;

/// What a piece counts as.
pub(crate) fn chunk_cost(bytes: usize) -> usize {
    bytes.max(MIN_CHUNK_COST)
}

/// The bodies that are being received, by the ids of their calls.
#[derive(Debug, Default)]
pub(crate) struct RequestStreams(RefCell<HashMap<ExchangeId, Rc<UnprocessedChunks>>>);

/// What the application has not dealt with of one of them.
#[derive(Debug)]
pub(crate) struct UnprocessedChunks {
    /// The key of its connection among the peers.
    pub(crate) connection_key: usize,
    /// What its pieces [cost].
    pub(crate) cost: Cell<usize>,
    pub(crate) charge: Charge,
}

impl RequestStreams {
    pub(crate) fn open(&self, id: ExchangeId, unprocessed: &Rc<UnprocessedChunks>) {
        self.0.borrow_mut().insert(id, Rc::clone(unprocessed));
    }

    pub(crate) fn forget(&self, id: ExchangeId) {
        let forgotten = self.0.borrow_mut().remove(&id);
        drop(forgotten);
    }

    /// The application has dealt with a piece of a body: the key of the peer to be woken, which may read on.
    pub(crate) fn on_chunk_processed(&self, id: ExchangeId, bytes: usize) -> Option<usize> {
        let unprocessed = Rc::clone(self.0.borrow().get(&id)?);
        unprocessed.cost.set(unprocessed.cost.get().saturating_sub(chunk_cost(bytes)));
        unprocessed.update_charge();
        Some(unprocessed.connection_key)
    }
}

impl UnprocessedChunks {
    /// What is charged for it.
    pub(crate) fn bytes_to_charge(&self) -> usize {
        if self.cost.get() <= UNCHARGED_BYTES { 0 } else { self.cost.get() }
    }

    pub(crate) fn update_charge(&self) {
        self.charge.set(self.bytes_to_charge());
    }
}
