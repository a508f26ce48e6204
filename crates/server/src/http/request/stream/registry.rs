//! The registry of the request bodies that are being passed to applications chunk by chunk.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{Charge, ExchangeId};
use rookery_worker_protocol::SharedScoreboard;

use crate::connections::admission::UNCHARGED_BYTES;

/// The minimum cost of a chunk of a streamed request body, in bytes. It covers the memory that even
/// a chunk of one byte needs: an event, a buffer and an object in the application.
const MIN_CHUNK_COST: usize = 4 << 10;

/// Returns the cost of a chunk of `bytes` bytes. The cost counts towards the limit on chunks that
/// the application has not processed.
pub(crate) fn chunk_cost(bytes: usize) -> usize {
    bytes.max(MIN_CHUNK_COST)
}

/// The request bodies that are being passed to the application chunk by chunk, by the id of their
/// exchange.
#[derive(Debug)]
pub(crate) struct RequestStreams {
    open: RefCell<HashMap<ExchangeId, Rc<UnprocessedChunks>>>,
    /// The scoreboard on which the request bodies are counted.
    scoreboard: Option<Arc<SharedScoreboard>>,
}

/// The chunks of a request body that the application has not processed yet.
#[derive(Debug)]
pub(crate) struct UnprocessedChunks {
    /// The key of the client's connection in the connection table.
    pub(crate) connection_key: usize,
    /// The total [cost](chunk_cost) of the unprocessed chunks in bytes.
    pub(crate) cost: Cell<usize>,
    pub(crate) charge: Charge,
}

impl RequestStreams {
    pub(crate) fn new(scoreboard: Option<Arc<SharedScoreboard>>) -> RequestStreams {
        RequestStreams { open: RefCell::default(), scoreboard }
    }

    pub(crate) fn open(&self, id: ExchangeId, unprocessed: &Rc<UnprocessedChunks>) {
        let before = self.open.borrow_mut().insert(id, Rc::clone(unprocessed));
        if let Some(scoreboard) = self.scoreboard.as_ref().filter(|_| before.is_none()) {
            scoreboard.open_stream();
        }
    }

    pub(crate) fn forget(&self, id: ExchangeId) {
        let forgotten = self.open.borrow_mut().remove(&id);
        if let Some(scoreboard) = self.scoreboard.as_ref().filter(|_| forgotten.is_some()) {
            scoreboard.close_stream();
        }
    }

    /// Records that the application has processed a chunk of `bytes` bytes of a request body.
    /// Returns the connection-table key of the client's connection. The caller wakes this
    /// connection, because it may now read more.
    pub(crate) fn on_chunk_processed(&self, id: ExchangeId, bytes: usize) -> Option<usize> {
        let unprocessed = Rc::clone(self.open.borrow().get(&id)?);
        unprocessed.cost.set(unprocessed.cost.get().saturating_sub(chunk_cost(bytes)));
        unprocessed.update_charge();
        Some(unprocessed.connection_key)
    }
}

impl UnprocessedChunks {
    /// Returns the number of bytes to charge to the memory budget for the unprocessed chunks of the
    /// request body.
    pub(crate) fn bytes_to_charge(&self) -> usize {
        if self.cost.get() <= UNCHARGED_BYTES { 0 } else { self.cost.get() }
    }

    pub(crate) fn update_charge(&self) {
        self.charge.set(self.bytes_to_charge());
    }
}
