//! The pool of exchanges kept for reuse.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rookery_exchange::{Budget, Exchange, Share};

use crate::blocking::unnamed_file::UnnamedFile;

/// The maximum number of pooled exchanges, which is as many as the default queue holds. Their bytes
/// have a limit of their own, [`Limits::pool_bytes`](crate::Limits::pool_bytes).
const MAX_POOLED: usize = 1024;

/// The pool of exchanges kept for reuse.
#[derive(Debug)]
pub(super) struct ExchangePool {
    pooled: RefCell<Vec<PooledExchange>>,
    /// The bytes of the pooled exchanges, and their maximum.
    bytes: Cell<usize>,
    max_bytes: usize,
    budget: Arc<Budget>,
}

/// An exchange kept for reuse.
#[derive(Debug)]
struct PooledExchange {
    exchange: Box<Exchange>,
    /// The bytes that the exchange holds, measured when it was put back.
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

    /// Takes back an exchange whose response was sent or is not wanted.
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
