//! The pool of unused exchanges. An exchange holds the memory of one request and its response, and
//! is reused for later requests.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rookery_exchange::{Budget, Exchange, Share};

use crate::blocking::unnamed_file::UnnamedFile;

/// The maximum number of exchanges (each a request with its response) that are pooled for reuse. It
/// equals the default maximum of queued requests.
const MAX_POOLED: usize = 1024;

/// The pool of unused exchanges. An exchange holds the memory of one request and its response, and
/// is reused for later requests.
#[derive(Debug)]
pub(super) struct ExchangePool {
    pooled: RefCell<Vec<PooledExchange>>,
    /// The memory of all pooled exchanges, in bytes.
    bytes: Cell<usize>,
    /// The maximum memory of all pooled exchanges, in bytes.
    max_bytes: usize,
    budget: Arc<Budget>,
}

/// An unused exchange (the memory of a request and its response) in the pool.
#[derive(Debug)]
struct PooledExchange {
    exchange: Box<Exchange>,
    /// The memory that the exchange holds, in bytes.
    bytes: usize,
}

impl ExchangePool {
    pub(super) fn new(max_bytes: usize, budget: Arc<Budget>) -> ExchangePool {
        ExchangePool { pooled: RefCell::default(), bytes: Cell::new(0), max_bytes, budget }
    }

    pub(super) fn take(&self) -> Box<Exchange> {
        self.pooled.borrow_mut().pop().map_or_else(Exchange::new, |pooled| {
            self.set_bytes(self.bytes.get() - pooled.bytes);
            pooled.exchange
        })
    }

    /// Puts an exchange back into the pool, after its response was sent or discarded.
    pub(super) fn put_back(&self, mut exchange: Box<Exchange>) {
        if let Some(spool) = exchange.body_mut().take_file() {
            drop(UnnamedFile::new(spool));
        }
        let mut pooled = self.pooled.borrow_mut();
        if pooled.len() < MAX_POOLED {
            exchange.reset();
            let bytes = exchange.capacity();
            let all = self.bytes.get() + bytes;
            if all <= self.max_bytes {
                self.set_bytes(all);
                pooled.push(PooledExchange { exchange, bytes });
            }
        }
    }

    fn set_bytes(&self, bytes: usize) {
        self.bytes.set(bytes);
        self.budget.set_used(Share::Pool, bytes);
    }
}
