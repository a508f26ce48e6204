//! A pool of reusable parts of request contexts (the server's data about each request), so that a
//! request needs no memory allocation for them.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use rookery_error::{Reports, RequestHook};
use rookery_exchange::{Budget, Charge, Share, TraceContext};

use crate::http::request::request_span::RequestSpan;
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
    /// The address of the request's client, which a trusted proxy may have named.
    pub(crate) client: Option<SocketAddr>,
    /// The access log data of the request, until the request is complete.
    pub(crate) pending_record: PendingRecord,
    /// The identity of the request's SERVER span, if this process traces and has no supervisor that
    /// does. The span itself exists only if it is recorded.
    pub(crate) trace: Option<TraceContext>,
    /// The SERVER span of the request, if it is recorded.
    pub(crate) span: Option<Box<RequestSpan>>,
    /// The charge to the memory budget for the response. It ends when the response has been
    /// written.
    pub(crate) response_charge: Charge,
    /// The buffer that responses are copied into and sent from.
    pub(crate) buffer: BytesMut,
}

impl ContextParts {
    /// Completes the request's access log record and its span.
    pub(crate) fn end_records(&mut self) {
        self.pending_record.end();
        if let Some(span) = self.span.take() {
            (*span).end();
        }
    }
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
                client: None,
                pending_record: PendingRecord::default(),
                trace: None,
                span: None,
                response_charge: Charge::new(budget, Share::Outgoing),
                buffer: BytesMut::new(),
            })
        })
    }

    /// Writes the request's access log record, ends its span, and returns the parts of its request
    /// context to the pool.
    pub(crate) fn put_back(&self, mut parts: Box<ContextParts>) {
        parts.end_records();
        parts.trace = None;
        parts.response_charge.set(0);
        let mut pooled = self.0.borrow_mut();
        if pooled.len() < MAX_POOLED {
            pooled.push(parts);
        }
    }
}
