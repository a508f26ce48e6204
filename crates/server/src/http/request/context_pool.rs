//! What a call has that is used again by another one, so that a call allocates nothing.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use rookery_error::{Reports, RequestHook};
use rookery_exchange::{Budget, Charge, Share};

use crate::logging::access_log::pending_record::PendingRecord;
use crate::rejection::Rejection;

/// Parts kept for reuse: those of as many calls as are answered between two looks at the application.
const MAX_POOLED: usize = 256;

/// Bytes of a reply whose buffer is kept: 16 MiB in all.
pub(crate) const MAX_POOLED_BUFFER: usize = 64 << 10;

/// What a call has that is used again.
#[derive(Debug)]
pub(crate) struct ContextParts {
    /// Knows which request is being served.
    pub(crate) hook: Arc<RequestHook<Rejection>>,
    /// The access log's entry.
    pub(crate) pending_record: PendingRecord,
    /// What the reply is charged for until it has been written.
    pub(crate) response_charge: Charge,
    /// The bytes of replies: split off, sent, and used again.
    pub(crate) buffer: BytesMut,
}

/// Parts that are not in use.
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

    /// Takes parts back; their entry is recorded.
    pub(crate) fn put_back(&self, mut parts: Box<ContextParts>) {
        parts.pending_record.end();
        parts.response_charge.set(0);
        let mut pooled = self.0.borrow_mut();
        if pooled.len() < MAX_POOLED {
            pooled.push(parts);
        }
    }
}
