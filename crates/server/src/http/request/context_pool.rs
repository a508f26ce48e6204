//! A pool of the parts that request contexts reuse, so that a request allocates no memory for them.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use rookery_error::{Reports, RequestHook};
use rookery_exchange::{Budget, Charge, Share};

use crate::logging::access_log::pending_record::PendingRecord;
use crate::rejection::Rejection;

/// The maximum number of pooled parts. It covers the requests that complete between two visits of
/// the I/O thread to the application's queue.
const MAX_POOLED: usize = 256;

/// The maximum size of a response whose buffer is kept for reuse. All pooled buffers together take
/// up to 16 MiB.
pub(crate) const MAX_POOLED_BUFFER: usize = 64 << 10;

/// The reusable parts of a request context.
#[derive(Debug)]
pub(crate) struct ContextParts {
    /// The error hook, which knows the request that is being served.
    pub(crate) hook: Arc<RequestHook<Rejection>>,
    /// The pending access log record.
    pub(crate) pending_record: PendingRecord,
    /// The charge for the response until it has been written.
    pub(crate) response_charge: Charge,
    /// The buffer that responses are copied into, split off and sent from.
    pub(crate) buffer: BytesMut,
}

/// A pool of parts that are not in use.
#[derive(Debug, Default)]
#[expect(
    clippy::vec_box,
    reason = "they are moved with their call, from future to future, and stay where they are"
)]
pub(crate) struct ContextPool(RefCell<Vec<Box<ContextParts>>>);

impl ContextPool {
    pub(crate) fn take(
        &self,
        reports: &Arc<Reports<Rejection>>,
        budget: &Arc<Budget>,
    ) -> Box<ContextParts> {
        let pooled = self.0.borrow_mut().pop();
        pooled.unwrap_or_else(|| {
            Box::new(ContextParts {
                hook: reports.hook(),
                pending_record: PendingRecord::default(),
                response_charge: Charge::new(budget, Share::Replies),
                buffer: BytesMut::new(),
            })
        })
    }

    /// Writes the access log record and returns the parts to the pool.
    pub(crate) fn put_back(&self, mut parts: Box<ContextParts>) {
        parts.pending_record.end();
        parts.response_charge.set(0);
        let mut pooled = self.0.borrow_mut();
        if pooled.len() < MAX_POOLED {
            pooled.push(parts);
        }
    }
}
