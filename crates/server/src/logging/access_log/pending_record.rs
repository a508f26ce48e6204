//! The entry of a request that is under way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use http::{Method, Uri, Version};
use rookery_exchange::{RequestId, StreamEnd, UpstreamLog, write_masked};

use super::record::{PATH_BYTES, Protocol, Record};
use super::{AccessLog, lock};

/// The status in the log of a request whose client went away before it was answered; none was sent. 499 is what nginx
/// writes for it.
const CLIENT_GONE: u16 = 499;

/// Where the I/O thread finds the log of the moment.
#[derive(Debug, Default)]
pub(crate) struct CurrentLog {
    /// So that a server without a log pays one load per request.
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

/// The entry of a request: begun when its head has been read, ended when the last byte of the reply is with the system, or
/// the connection is over.
#[derive(Debug, Default)]
pub(crate) struct PendingRecord {
    fields: Option<Fields>,
    /// Method, path, query and id, one behind the other: kept from request to request.
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
    status: u16,
    bytes: u64,
    aborted: Option<StreamEnd>,
    upstream: Option<UpstreamLog>,
}

impl PendingRecord {
    /// Begins the entry of a request; does nothing while there is no log.
    pub(crate) fn begin(
        &mut self,
        current: &CurrentLog,
        remote: Option<SocketAddr>,
        (method, uri, version): (&Method, &Uri, Version),
        id: impl FnOnce() -> RequestId,
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
        head.extend_from_slice(id().as_bytes());
        let protocol = Protocol::of(version);
        self.fields = Some(Fields { method, path, query, ..Fields::new(log, remote, protocol) });
    }

    /// Whether there is one.
    pub(crate) fn is_begun(&self) -> bool {
        self.fields.is_some()
    }

    /// What became of it at workers.
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

    /// Bytes that were counted have not been sent after all.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        if let Some(fields) = &mut self.fields {
            fields.bytes = fields.bytes.saturating_sub(bytes as u64);
        }
    }

    /// The reply is not going to be whole.
    pub(crate) fn abort(&mut self, reason: StreamEnd) {
        if let Some(fields) = &mut self.fields {
            fields.aborted = Some(reason);
        }
    }

    /// Records the entry, if one has been begun.
    pub(crate) fn end(&mut self) {
        if let Some(fields) = self.fields.take() {
            fields.record(&self.head);
        }
    }
}

/// Records a head that could not be read: nothing of it is known.
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
            upstream: self.upstream,
        });
    }
}
