//! The pool of unused exchanges. An exchange holds the memory of one request and its response, and
//! is reused for later requests.

use std::cell::{Cell, RefCell};

use rookery_exchange::Exchange;

use crate::blocking::unnamed_file::close_in_background;

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
}

/// An unused exchange (the memory of a request and its response) in the pool.
#[derive(Debug)]
struct PooledExchange {
    exchange: Box<Exchange>,
    /// The memory that the exchange holds, in bytes.
    bytes: usize,
}

impl ExchangePool {
    pub(super) fn new(max_bytes: usize) -> ExchangePool {
        ExchangePool { pooled: RefCell::default(), bytes: Cell::new(0), max_bytes }
    }

    pub(super) fn take(&self) -> Box<Exchange> {
        self.pooled.borrow_mut().pop().map_or_else(Exchange::new, |pooled| {
            self.bytes.set(self.bytes.get() - pooled.bytes);
            pooled.exchange
        })
    }

    /// Puts an exchange back into the pool, after its response was sent or discarded.
    pub(super) fn put_back(&self, mut exchange: Box<Exchange>) {
        if let Some((spool, guard)) = exchange.body_mut().take_file() {
            close_in_background(spool, guard);
        }
        let mut pooled = self.pooled.borrow_mut();
        if pooled.len() < MAX_POOLED {
            exchange.reset();
            let bytes = exchange.capacity();
            let all = self.bytes.get() + bytes;
            if all <= self.max_bytes {
                self.bytes.set(all);
                pooled.push(PooledExchange { exchange, bytes });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_holds_no_more_than_its_limit() {
        let limit = 256 << 10;
        let pool = ExchangePool::new(limit);
        let used: Vec<_> = (0..20).map(|_| pool.take()).collect();
        for mut exchange in used {
            exchange.begin_response(200);
            exchange.set_response_body(&vec![0; 60_000]);
            pool.put_back(exchange);
        }
        let pooled = pool.pooled.borrow().len();
        assert!(pool.bytes.get() > limit / 2 && pool.bytes.get() <= limit, "{pooled}: {pool:?}");
        // An exchange that was taken out of the pool no longer counts.
        let taken: Vec<_> = (0..pooled).map(|_| pool.take()).collect();
        assert_eq!(pool.bytes.get(), 0);
        drop(taken);
    }
}
