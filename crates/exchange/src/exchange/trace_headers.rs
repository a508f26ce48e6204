//! The headers of a request that pass the context of a trace on (W3C Trace Context).

use super::Exchange;
use super::arena_slice::ArenaSlice;
use super::header_names::{KNOWN_HEADERS, StoredHeader, known_header};
use crate::trace_context::TraceContext;

/// The name of the header that carries the context of a trace.
const TRACEPARENT: &[u8] = b"traceparent";

impl Exchange {
    /// Sets the request's `traceparent` header to this context, in place of the client's. It must
    /// be called after [`end_head`](Self::end_head).
    pub fn set_trace_context(&mut self, context: &TraceContext) {
        self.trace = Some(*context);
        let value = self.keep(&context.to_header());
        // SAFETY: the slices belong to this exchange (or are static), which is borrowed.
        let name = |header: &StoredHeader| unsafe { header.name.bytes::<'static>() };
        match self.headers.binary_search_by(|header| name(header).cmp(TRACEPARENT)) {
            Ok(at) => self.headers[at].value = value,
            Err(at) => {
                let known = known_header(TRACEPARENT).expect("it is in the table");
                let table = &KNOWN_HEADERS[usize::from(known)];
                let (name, cgi) =
                    (ArenaSlice::of(table.name.as_bytes()), ArenaSlice::of(table.cgi.as_bytes()));
                self.headers.insert(at, StoredHeader { name, cgi, value, known });
            }
        }
    }

    /// Removes the request header with this name. `name` must be in lower case.
    pub fn remove_header(&mut self, name: &[u8]) {
        if name == TRACEPARENT {
            self.trace = None;
        }
        // SAFETY: the slices belong to this exchange (or are static), which is borrowed.
        self.headers.retain(|header| unsafe { header.name.bytes() } != name);
    }

    /// Returns the context in the request's `traceparent` header, if there is a valid one.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.trace.or_else(|| TraceContext::parse(self.header(TRACEPARENT)?))
    }
}
