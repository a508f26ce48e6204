//! The access-log record of a request that is not complete yet.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use http::{Method, Uri, Version};
use rookery_exchange::{RequestId, StreamEnd, TraceContext, UpstreamLog, write_masked};

use super::record::{PATH_BYTES, Protocol, Record};
use super::{AccessLog, lock};

/// The status that the access log shows for a request whose client disconnected before the
/// response. nginx uses the same number.
const CLIENT_GONE: u16 = 499;

/// The current access log of a server, or none. It may be replaced while the server runs.
#[derive(Debug, Default)]
pub(crate) struct CurrentLog {
    /// True if there is an access log.
    // Without an access log, a request costs only one read of this flag.
    is_on: AtomicBool,
    log: Mutex<Option<Arc<AccessLog>>>,
}

impl CurrentLog {
    pub(crate) fn set(&self, log: Option<Arc<AccessLog>>) {
        let mut current = lock(&self.log);
        self.is_on.store(log.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *current, log);
        drop(current);
        drop(before);
    }

    fn get(&self) -> Option<Arc<AccessLog>> {
        if self.is_on.load(Ordering::Relaxed) { lock(&self.log).clone() } else { None }
    }
}

/// The access-log record of a request that is not complete yet. The record begins when the request
/// head has been read. It ends when the system has accepted the last byte of the response, or when
/// the connection is closed.
#[derive(Debug, Default)]
pub(crate) struct PendingRecord {
    fields: Option<Fields>,
    /// The request's method, path, query and id, concatenated.
    head: Vec<u8>,
}

#[derive(Debug)]
struct Fields {
    log: Arc<AccessLog>,
    time: SystemTime,
    since: Instant,
    remote: Option<SocketAddr>,
    protocol: Protocol,
    method: usize,
    path: usize,
    query: usize,
    trace_id: Option<[u8; 32]>,
    status: u16,
    bytes: u64,
    aborted: Option<StreamEnd>,
    upstream: Option<UpstreamLog>,
}

impl PendingRecord {
    /// Begins the access-log record of a request. `id` returns the request's id, and the context of
    /// its trace. Does nothing if there is no access log.
    pub(crate) fn begin(
        &mut self,
        current: &CurrentLog,
        remote: Option<SocketAddr>,
        (method, uri, version): (&Method, &Uri, Version),
        id: impl FnOnce() -> (RequestId, Option<TraceContext>),
    ) {
        let Some(log) = current.get() else { return };
        let head = &mut self.head;
        head.clear();
        head.extend_from_slice(method.as_str().as_bytes());
        let method = head.len();
        write_masked(uri.path().as_bytes(), PATH_BYTES, head);
        let path = head.len();
        if let Some(query) = uri.query() {
            head.push(b'?');
            write_masked(query.as_bytes(), PATH_BYTES, head);
        }
        let query = head.len();
        let (id, trace) = id();
        head.extend_from_slice(id.as_bytes());
        let trace_id = trace.map(|trace| trace.trace_id_text());
        let protocol = Protocol::of(version);
        let fields = Fields::new(log, remote, protocol);
        self.fields = Some(Fields { method, path, query, trace_id, ..fields });
    }

    /// Returns true while the access-log record of a request has begun and is not complete.
    pub(crate) fn is_begun(&self) -> bool {
        self.fields.is_some()
    }

    /// Adds the data about the request's workers to the access-log record, such as the worker that
    /// received the request last and the number of attempts.
    pub(crate) fn set_upstream(&mut self, upstream: UpstreamLog) {
        if let Some(fields) = &mut self.fields {
            fields.upstream = Some(upstream);
        }
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        if let Some(fields) = &mut self.fields {
            fields.status = status;
        }
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        if let Some(fields) = &mut self.fields {
            fields.bytes += bytes as u64;
        }
    }

    /// Subtracts `bytes` from the number of response bytes in the access-log record, because they
    /// were counted but could not be sent.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        if let Some(fields) = &mut self.fields {
            fields.bytes = fields.bytes.saturating_sub(bytes as u64);
        }
    }

    /// Records in the access log that the response is incomplete, and why.
    pub(crate) fn abort(&mut self, reason: StreamEnd) {
        if let Some(fields) = &mut self.fields {
            fields.aborted = Some(reason);
        }
    }

    /// Completes the access-log record of a request and adds it to the log. Does nothing if no
    /// record has been begun.
    pub(crate) fn end(&mut self) {
        if let Some(fields) = self.fields.take() {
            fields.record(&self.head);
        }
    }
}

/// Adds an access-log record for a request whose head could not be read. Its method and path are
/// unknown.
pub(crate) fn record_unreadable(
    current: &CurrentLog,
    remote: Option<SocketAddr>,
    status: u16,
    bytes: usize,
) {
    if let Some(log) = current.get() {
        Fields { status, bytes: bytes as u64, ..Fields::new(log, remote, Protocol::Http11) }
            .record(&[]);
    }
}

impl Fields {
    fn new(log: Arc<AccessLog>, remote: Option<SocketAddr>, protocol: Protocol) -> Fields {
        Fields {
            log,
            time: SystemTime::now(),
            since: Instant::now(),
            remote,
            protocol,
            method: 0,
            path: 0,
            query: 0,
            trace_id: None,
            status: 0,
            bytes: 0,
            aborted: None,
            upstream: None,
        }
    }

    fn record(self, head: &[u8]) {
        self.log.record(&Record {
            time: self.time,
            remote: self.remote,
            method: &head[..self.method],
            path: &head[self.method..self.path],
            query: &head[self.path..self.query],
            protocol: self.protocol,
            status: if self.status == 0 { CLIENT_GONE } else { self.status },
            bytes: self.bytes,
            elapsed: self.since.elapsed(),
            aborted: self.aborted.or((self.status == 0).then_some(StreamEnd::Client)),
            request_id: &head[self.query..],
            trace_id: self.trace_id,
            upstream: self.upstream,
        });
    }
}
