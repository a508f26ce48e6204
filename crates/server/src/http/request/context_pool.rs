//! A pool of reusable parts of request contexts (the server's data about each request), so that a
//! request needs no memory allocation for them.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use rookery_error::{Reports, RequestHook};
use rookery_exchange::{Budget, Charge, Share};

use crate::logging::access_log::pending_record::PendingRecord;
use crate::rejection::Rejection;

/// The maximum number of unused [`ContextParts`] that the pool keeps.
const MAX_POOLED: usize = 256;

/// The maximum capacity in bytes of a response buffer that the pool keeps for reuse. All pooled
/// buffers together take up to 16 MiB.
pub(crate) const MAX_POOLED_BUFFER: usize = 64 << 10;

/// The parts of a request context (the server's data about a request) that are reused for later
/// requests, such as its response buffer.
#[derive(Debug)]
pub(crate) struct ContextParts {
    /// The error hook: an object that receives the errors that occur while the request is served.
    pub(crate) hook: Arc<RequestHook<Rejection>>,
    /// The access log data of the request, until the request is complete.
    pub(crate) pending_record: PendingRecord,
    /// The charge to the memory budget for the response. It ends when the response has been
    /// written.
    pub(crate) response_charge: Charge,
    /// The buffer that responses are copied into and sent from.
    pub(crate) buffer: BytesMut,
}

/// A pool of unused [`ContextParts`]: buffers and other parts of the server's data about a request,
/// which later requests reuse.
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

    /// Writes the request's access log record, and returns the parts of its request context to the
    /// pool.
    pub(crate) fn put_back(&self, mut parts: Box<ContextParts>) {
        parts.pending_record.end();
        parts.response_charge.set(0);
        let mut pooled = self.0.borrow_mut();
        if pooled.len() < MAX_POOLED {
            pooled.push(parts);
        }
    }
}
