//! The record of a request that is not complete yet, for the access log and for the metrics by
//! route.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use http::request::Parts;
use rookery_exchange::{
    AppTimes, Exchange, RequestId, ResponseBody, StreamEnd, TraceContext, UpstreamLog,
    write_masked, write_masked_query,
};
use rookery_worker_protocol::{MAX_ROUTE_LEN, RouteName, RouteSample, RouteTable, first_segment};

use super::record::{PATH_BYTES, Protocol, Record};
use super::{AccessLog, lock};

/// The maximum length of each text about the client in the access log, in bytes.
pub(super) const CLIENT_BYTES: usize = 512;

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

    fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self) -> Option<Arc<AccessLog>> {
        if self.is_on() { lock(&self.log).clone() } else { None }
    }
}

/// The places where the requests of an I/O thread are recorded: the current access log, and the
/// table in which requests are counted by route.
pub(crate) struct RequestLog {
    log: Arc<CurrentLog>,
    routes: Option<Arc<dyn AsRef<RouteTable>>>,
}

impl RequestLog {
    pub(crate) fn new(
        log: Arc<CurrentLog>,
        routes: Option<Arc<dyn AsRef<RouteTable>>>,
    ) -> RequestLog {
        RequestLog { log, routes }
    }

    /// Returns true if there is an access log.
    pub(crate) fn is_on(&self) -> bool {
        self.log.is_on()
    }
}

/// The texts about the client of a request in the access log. Each may be empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientTexts<'a> {
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
    /// The `Host` header.
    pub(crate) host: &'a [u8],
    /// The subject of the client's TLS certificate.
    pub(crate) user: &'a [u8],
}

/// The record of a request that is not complete yet. The record begins when the request head has
/// been read. It ends when the system has accepted the last byte of the response, or when the
/// connection is closed. Then the request is written to the access log and counted by its route.
#[derive(Debug, Default)]
pub(crate) struct PendingRecord {
    fields: Option<Fields>,
    /// The request's method, path, query, id, referer, user agent, host, user and route,
    /// concatenated. The buffer is reused for each request.
    head: Vec<u8>,
}

struct Fields {
    log: Option<Arc<AccessLog>>,
    routes: Option<Arc<dyn AsRef<RouteTable>>>,
    /// The time at which the request head had been read; the Unix epoch without an access log.
    time: SystemTime,
    since: Instant,
    remote: Option<SocketAddr>,
    protocol: Protocol,
    method: usize,
    path: usize,
    query: usize,
    trace_id: Option<[u8; 32]>,
    id: usize,
    referer: usize,
    agent: usize,
    host: usize,
    user: usize,
    status: u16,
    bytes: u64,
    aborted: Option<StreamEnd>,
    upstream: Option<UpstreamLog>,
    app: AppPart,
    is_https: bool,
}

/// The part of a record that only requests for the application have.
#[derive(Debug, Clone, Copy, Default)]
struct AppPart {
    /// Whether the request was to be passed to the application. Files, and requests that the server
    /// refuses before, have no route.
    is_asked: bool,
    is_route_set: bool,
    /// Whether the response is a stream of events, whose length says nothing about the application.
    is_event_stream: bool,
    times: Option<AppTimes>,
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields").field("status", &self.status).finish_non_exhaustive()
    }
}

impl PendingRecord {
    /// Begins the record of a request. `id` returns the request's id, and the context of its trace.
    /// Does nothing if there is neither an access log nor a table of routes.
    pub(crate) fn begin(
        &mut self,
        request_log: &RequestLog,
        (remote, is_https): (Option<SocketAddr>, bool),
        request: &Parts,
        client: &ClientTexts<'_>,
        id: impl FnOnce() -> (RequestId, Option<TraceContext>),
    ) {
        let (log, routes) = (request_log.log.get(), &request_log.routes);
        if log.is_none() && routes.is_none() {
            return;
        }
        let (uri, head) = (&request.uri, &mut self.head);
        head.clear();
        head.extend_from_slice(request.method.as_str().as_bytes());
        let protocol = Protocol::of(request.version);
        // The fields are set in place, because moving them would copy 300 bytes.
        let fields = self.fields.insert(Fields::new(log, remote, protocol));
        fields.routes.clone_from(routes);
        fields.is_https = is_https;
        fields.method = head.len();
        // Only the access log needs these parts.
        if fields.log.is_some() {
            match uri.path() {
                "" => write_target(uri.authority().map_or(&[], |it| it.as_str().as_bytes()), head),
                path => write_masked(path.as_bytes(), PATH_BYTES, head),
            }
        }
        fields.path = head.len();
        if let Some(query) = uri.query().filter(|_| fields.log.is_some()) {
            head.push(b'?');
            write_masked_query(query.as_bytes(), PATH_BYTES, head);
        }
        fields.query = head.len();
        if fields.log.is_some() {
            let (id, trace) = id();
            head.extend_from_slice(id.as_bytes());
            fields.trace_id = trace.map(|trace| trace.trace_id_text());
        }
        fields.id = head.len();
        if fields.log.as_ref().is_some_and(|log| log.names_client()) {
            write_masked(client.referer, CLIENT_BYTES, head);
            fields.referer = head.len();
            for (text, end) in [
                (client.user_agent, &mut fields.agent),
                (client.host, &mut fields.host),
                (client.user, &mut fields.user),
            ] {
                head.extend_from_slice(&text[..text.len().min(CLIENT_BYTES)]);
                *end = head.len();
            }
        } else {
            let end = head.len();
            (fields.referer, fields.agent, fields.host, fields.user) = (end, end, end, end);
        }
        // One byte more than the maximum, so that the name does not end within a character.
        if fields.log.is_some() {
            // The path is already masked.
            let path = fields.method..fields.path;
            let len = first_segment(&head[path.clone()]).len().min(MAX_ROUTE_LEN + 1);
            head.extend_from_within(path.start..path.start + len);
        } else {
            write_masked(first_segment(uri.path().as_bytes()), MAX_ROUTE_LEN + 1, head);
        }
    }

    /// Returns true while the access-log record of a request has begun and is not complete.
    pub(crate) fn is_begun(&self) -> bool {
        self.fields.is_some()
    }

    /// Records that the request is passed to the application, so that it has a route.
    pub(crate) fn set_for_app(&mut self) {
        if let Some(fields) = &mut self.fields {
            fields.app.is_asked = true;
        }
    }

    /// Records what the application's response says about the request: its route, and the times in
    /// front of the application and in it.
    pub(crate) fn set_response(&mut self, exchange: &Exchange) {
        let Some(fields) = &mut self.fields else { return };
        let route = RouteName::of_pattern(exchange.route());
        if !route.as_bytes().is_empty() {
            fields.app.is_route_set = true;
            self.head.truncate(fields.user);
            self.head.extend_from_slice(route.as_bytes());
        }
        fields.app.times = exchange.app_times();
        fields.app.is_event_stream = is_event_stream(exchange);
        fields.is_https = exchange.is_https();
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

    /// Records that the server has ended the request without a response of the application. Does
    /// nothing if there is a response. `reason` is set if no response is sent at all.
    pub(crate) fn end_without_response(
        &mut self,
        status: u16,
        bytes: usize,
        reason: Option<StreamEnd>,
    ) {
        if let Some(fields) = self.fields.as_mut().filter(|fields| fields.status == 0) {
            (fields.status, fields.bytes, fields.aborted) = (status, bytes as u64, reason);
        }
    }

    /// Completes the access-log record of a request and adds it to the log. Does nothing if no
    /// record has been begun.
    pub(crate) fn end(&mut self) {
        if let Some(fields) = &self.fields {
            fields.record(&self.head);
            self.fields = None;
        }
    }
}

/// Adds an access-log record for a request whose head could not be read. `request_line` contains
/// its method and its target, which may have any bytes, or is `None` if they are unknown.
pub(crate) fn record_unreadable(
    request_log: &RequestLog,
    remote: Option<SocketAddr>,
    status: u16,
    bytes: usize,
    request_line: Option<(&[u8], &[u8])>,
) {
    let Some(log) = request_log.log.get() else { return };
    let fields = Fields::new(Some(log), remote, Protocol::Http11);
    let mut fields = Fields { status, bytes: bytes as u64, ..fields };
    let mut head = Vec::new();
    if let Some((method, target)) = request_line {
        head.extend_from_slice(method);
        fields.method = head.len();
        let query = target.iter().position(|byte| *byte == b'?');
        let (path, query) = target.split_at(query.unwrap_or(target.len()));
        write_target(path, &mut head);
        fields.path = head.len();
        if let Some(query) = query.strip_prefix(b"?") {
            head.push(b'?');
            write_masked_query(query, PATH_BYTES, &mut head);
        }
        fields.query = head.len();
        // The later fields are empty.
        let Fields { id, referer, agent, host, user, .. } = &mut fields;
        for end in [id, referer, agent, host, user] {
            *end = head.len();
        }
    }
    fields.record(&head);
}

/// Appends a request target without its query, with its secrets masked. The target may be an
/// authority, which may begin with a name and a password.
fn write_target(target: &[u8], head: &mut Vec<u8>) {
    let is_authority = target.first() != Some(&b'/') && !target.windows(3).any(|it| it == b"://");
    let at = target.iter().rposition(|byte| *byte == b'@').filter(|_| is_authority);
    let masked: &[u8] = if at.is_some() { b"<...>" } else { &[] };
    head.extend_from_slice(masked);
    write_masked(&target[at.unwrap_or(0)..], PATH_BYTES - masked.len(), head);
}

/// Returns true if the response is a stream of events.
fn is_event_stream(exchange: &Exchange) -> bool {
    const KIND: &[u8] = b"text/event-stream";
    matches!(exchange.response().body(), ResponseBody::Stream(_))
        && exchange.response_headers().any(|(name, value)| {
            name.eq_ignore_ascii_case(b"content-type")
                && value.get(..KIND.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(KIND))
        })
}

impl Fields {
    fn new(log: Option<Arc<AccessLog>>, remote: Option<SocketAddr>, protocol: Protocol) -> Fields {
        let time = if log.is_some() { SystemTime::now() } else { SystemTime::UNIX_EPOCH };
        Fields {
            log,
            routes: None,
            time,
            since: Instant::now(),
            remote,
            protocol,
            method: 0,
            path: 0,
            query: 0,
            trace_id: None,
            id: 0,
            referer: 0,
            agent: 0,
            host: 0,
            user: 0,
            status: 0,
            bytes: 0,
            aborted: None,
            upstream: None,
            app: AppPart::default(),
            is_https: false,
        }
    }

    fn record(&self, head: &[u8]) {
        let elapsed = self.since.elapsed();
        let route = RouteName::of_pattern(&head[self.user..]);
        let (app, (queue, r)) = (self.app, self.times());
        if let Some(routes) = self.routes.as_deref().filter(|_| app.is_asked) {
            routes.as_ref().record(&RouteSample {
                route,
                is_route_set: app.is_route_set,
                method: &head[..self.method],
                is_https: self.is_https,
                status: self.status,
                queue,
                r,
                duration: (!app.is_event_stream).then_some(elapsed),
            });
        }
        let Some(log) = &self.log else { return };
        log.record(&Record {
            time: self.time,
            remote: self.remote,
            method: &head[..self.method],
            path: &head[self.method..self.path],
            query: &head[self.path..self.query],
            protocol: self.protocol,
            status: if self.status == 0 { CLIENT_GONE } else { self.status },
            bytes: self.bytes,
            elapsed,
            aborted: self.aborted.or((self.status == 0).then_some(StreamEnd::Client)),
            request_id: &head[self.query..self.id],
            trace_id: self.trace_id,
            referer: &head[self.id..self.referer],
            user_agent: &head[self.referer..self.agent],
            app: log.app().as_bytes(),
            host: &head[self.agent..self.host],
            user: &head[self.host..self.user],
            route: if app.is_asked { route.as_bytes() } else { &[] },
            queue,
            r,
            upstream: self.upstream,
        });
    }

    /// Returns the time for which the request has waited until R began with it, and the time that R
    /// took, as far as they are known.
    fn times(&self) -> (Option<Duration>, Option<Duration>) {
        let upstream = self.upstream.map(|upstream| upstream.queued);
        let Some(times) = self.app.times else { return (upstream, None) };
        (Some(times.queue + upstream.unwrap_or_default()), Some(times.app))
    }
}
