//! The records of the access log, and the formats in which they are written.

use std::io::{IsTerminal, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use rookery_exchange::{StreamEnd, TerminationState, UpstreamLog};

use crate::logging::civil::Civil;
use crate::logging::digits::{push_address, push_number, push_seconds, put_two_digits};
use crate::logging::json_lines::{escape_json, push_timestamp};
use crate::logging::output;

/// The maximum length of a path or query in the access log, in bytes. Clients may send up to 96
/// KiB, which would make lines unreadable.
pub(super) const PATH_BYTES: usize = 2048;

/// The access-log data of one complete request.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// The time at which the server finished reading the request head.
    pub time: SystemTime,
    /// The address of the client, or `None` if the client is connected over a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The request method. It is empty if the request was rejected before the method was known.
    pub method: &'a [u8],
    /// The path of the request, in which session tokens are masked.
    pub path: &'a [u8],
    /// The query of the request with its `?`, in which session tokens are masked. It is empty if
    /// there is no query.
    pub query: &'a [u8],
    /// The HTTP version of the request.
    pub protocol: Protocol,
    /// The status of the response. It is 101 for a WebSocket.
    pub status: u16,
    /// The number of bytes of the response body that the operating system has accepted for sending.
    pub bytes: u64,
    /// The time from the end of the request head to the end of the response.
    pub elapsed: Duration,
    /// The reason for which the response is incomplete, or `None` if it is complete.
    pub aborted: Option<StreamEnd>,
    /// The request id. It is empty if the request was rejected before the id was known.
    pub request_id: &'a [u8],
    /// The id of the request's trace in hexadecimal, or `None` if the request belongs to no trace.
    pub trace_id: Option<[u8; 32]>,
    /// The `Referer` header of the request, in which secrets are masked. Empty without the header.
    pub referer: &'a [u8],
    /// The `User-Agent` header of the request. Empty without the header.
    pub user_agent: &'a [u8],
    /// The name of the app. Empty if it has none.
    pub app: &'a [u8],
    /// The `Host` header of the request. Empty without the header.
    pub host: &'a [u8],
    /// The subject of the client's TLS certificate. Empty without a certificate.
    pub user: &'a [u8],
    /// The route of the request: the pattern that the application has set, otherwise the first
    /// segment of the path. It is empty if the request was not for the application.
    pub route: &'a [u8],
    /// The time for which the request waited until R began with it, if known.
    pub queue: Option<Duration>,
    /// The time from then until R's response, if known.
    pub r: Option<Duration>,
    /// Data about the workers of the request, such as the worker that received it last. `None` if
    /// no worker was involved.
    pub upstream: Option<UpstreamLog>,
}

/// The HTTP version of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1. It is also assumed for a request whose head could not be read.
    Http11,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    pub(super) fn of(version: http::Version) -> Protocol {
        match version {
            http::Version::HTTP_10 => Protocol::Http10,
            http::Version::HTTP_2 => Protocol::Http2,
            _ => Protocol::Http11,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Http10 => "HTTP/1.0",
            Protocol::Http11 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2.0",
        }
    }
}

/// An access-log [`Record`] that owns its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecord {
    /// The time at which the server finished reading the request head.
    pub time: SystemTime,
    /// The address of the client, or `None` if the client is connected over a Unix socket.
    pub remote: Option<SocketAddr>,
    /// The request method. It is empty if the request was rejected before the method was known.
    pub method: Vec<u8>,
    /// The path of the request, in which session tokens are masked, cut off after 2,048 bytes.
    pub path: Vec<u8>,
    /// The query of the request with its `?`, in which session tokens are masked, cut off after
    /// 2,048 bytes.
    pub query: Vec<u8>,
    /// The status of the response. It is 101 for a WebSocket.
    pub status: u16,
    /// The number of bytes of the response body that the operating system has accepted for sending.
    pub bytes: u64,
    /// The time from the end of the request head to the end of the response.
    pub elapsed: Duration,
    /// The reason for which the response is incomplete, or `None` if it is complete.
    pub aborted: Option<StreamEnd>,
    /// The request id. It is empty if the request was rejected before the id was known.
    pub request_id: Vec<u8>,
    /// The id of the request's trace in hexadecimal, or `None` if the request belongs to no trace.
    pub trace_id: Option<[u8; 32]>,
    /// The route of the request; empty if the request was not for the application.
    pub route: Vec<u8>,
    /// The time for which the request waited until R began with it, if known.
    pub queue: Option<Duration>,
    /// The time from then until R's response, if known.
    pub r: Option<Duration>,
    /// Data about the workers of the request, such as the worker that received it last. `None` if
    /// no worker was involved.
    pub upstream: Option<UpstreamLog>,
    /// The reason for which the request did not complete normally, or `None` if it did
    /// ([`Record::ended`]).
    pub ended: Option<TerminationState>,
}

/// The format of the lines of an access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One line per request in the Common Log Format, followed by the duration of the request in
    /// seconds.
    Common,
    /// The Common Log Format with the duration ([`Common`](Self::Common)), followed by nine fields
    /// about how the supervisor and its workers served the request. Unknown values are written as
    /// `-`. The fields are:
    /// - the request id
    /// - the worker's slot, process id and start number
    /// - the seconds in the queue, and the seconds from the end of the queue to the response head
    /// - the number of retries
    /// - the [termination state](Record::ended)
    /// - the session
    CommonOfWorkers,
    /// The Combined Log Format, which is the Common Log Format with the `Referer` and the
    /// `User-Agent`, followed by four fields: the duration of the request, the time for which it
    /// waited until R began with it, the time that R took, all in seconds, and the route. Unknown
    /// values are written as `-`.
    Combined,
    /// One JSON object per line for each request.
    Json,
    /// Aligned columns for people at a terminal.
    Terminal {
        /// Whether the lines have colour.
        is_coloured: bool,
    },
    /// Fields that are separated by tabs, for the R session that has called `serve()`: the word
    /// `record`, the time in seconds since 1970, and the values of the R function's argument in
    /// their order. Unknown values are empty. `%`, tabs, line feeds and zero bytes are
    /// percent-encoded.
    Fields,
}

impl Format {
    /// Returns this format with colour if it is the one for terminals and `out` should have colour
    /// ([`output::is_coloured`]).
    #[must_use]
    pub fn for_output(self, out: &impl IsTerminal) -> Format {
        match self {
            Format::Terminal { .. } => Format::Terminal { is_coloured: output::is_coloured(out) },
            format => format,
        }
    }

    /// Returns true if the format has the `Referer` and the `User-Agent` of a request.
    pub(super) fn names_client(self) -> bool {
        matches!(self, Format::Combined | Format::Json)
    }
}

impl Record<'_> {
    /// Returns a copy of the access-log record that owns its data.
    pub fn to_owned(&self) -> OwnedRecord {
        OwnedRecord {
            time: self.time,
            remote: self.remote,
            method: self.method.to_vec(),
            path: cut(self.path).to_vec(),
            query: cut(self.query).to_vec(),
            status: self.status,
            bytes: self.bytes,
            elapsed: self.elapsed,
            aborted: self.aborted,
            request_id: self.request_id.to_vec(),
            trace_id: self.trace_id,
            route: self.route.to_vec(),
            queue: self.queue,
            r: self.r,
            upstream: self.upstream,
            ended: self.ended(),
        }
    }

    /// Appends the access-log record to `out` as a line, including the line feed.
    pub fn write_line(&self, format: Format, out: &mut Vec<u8>) {
        match format {
            Format::Common => self.write_common(out, false),
            Format::CommonOfWorkers => self.write_common(out, true),
            Format::Combined => self.write_combined(out),
            Format::Json => self.write_json(out),
            Format::Terminal { is_coloured } => {
                // Writing to a `Vec` cannot fail.
                let _ = self.write_terminal(is_coloured, out);
            }
            Format::Fields => self.to_owned().write_fields(out),
        }
    }

    /// Returns the reason for which the request did not complete normally, or `None` if it did. The
    /// reason in [`upstream`](Record::upstream) takes precedence. If there is none, the reason is
    /// inferred from the rest of the record.
    pub fn ended(&self) -> Option<TerminationState> {
        let told = self.upstream.and_then(|upstream| upstream.termination_state);
        let has_worker = self.upstream.is_some_and(|upstream| upstream.worker.is_some());
        told.or(match self.aborted {
            Some(StreamEnd::Client | StreamEnd::Slow) => Some(TerminationState::ClientDisconnected),
            Some(StreamEnd::Timeout) => Some(TerminationState::Timeout),
            // The worker's response ended early.
            Some(StreamEnd::Error) if has_worker => Some(TerminationState::WorkerDied),
            // The request head or body was not received in time.
            None if self.status == 408 => Some(TerminationState::Timeout),
            _ => None,
        })
    }

    fn write_common(&self, out: &mut Vec<u8>, tells_of_workers: bool) {
        self.write_common_fields(out);
        out.push(b' ');
        push_seconds(self.elapsed, out);
        if tells_of_workers {
            self.write_upstream(out);
        }
        out.push(b'\n');
    }

    /// Appends the fields of the Common Log Format, without a line feed.
    pub(super) fn write_common_fields(&self, out: &mut Vec<u8>) {
        let civil = Civil::of(self.time);
        match self.remote {
            Some(remote) => push_address(remote.ip(), out),
            None => out.push(b'-'),
        }
        let mut time = *b" - - [00/Mmm/0000:00:00:00 +0000] \"";
        time[9..12].copy_from_slice(MONTHS[usize::from(civil.month) - 1].as_bytes());
        put_two_digits(&mut time, 6, civil.day.into());
        put_two_digits(&mut time, 13, civil.year / 100);
        put_two_digits(&mut time, 15, civil.year);
        put_two_digits(&mut time, 18, civil.hour.into());
        put_two_digits(&mut time, 21, civil.minute.into());
        put_two_digits(&mut time, 24, civil.second.into());
        out.extend_from_slice(&time);
        escape_common(if self.method.is_empty() { b"-" } else { self.method }, out);
        out.push(b' ');
        escape_common(cut(self.path), out);
        escape_common(cut(self.query), out);
        out.push(b' ');
        out.extend_from_slice(self.protocol.name().as_bytes());
        out.extend_from_slice(b"\" ");
        push_number(self.status.into(), out);
        out.push(b' ');
        push_number(self.bytes, out);
    }

    fn write_upstream(&self, out: &mut Vec<u8>) {
        out.push(b' ');
        // The request id needs no escaping, because it consists of letters, digits, `.`, `_` and
        // `-`.
        out.extend_from_slice(if self.request_id.is_empty() { b"-" } else { self.request_id });
        let upstream = self.upstream.unwrap_or_default();
        let worker = upstream.worker;
        push_field(worker.map(|worker| worker.slot.into()), push_number, out);
        push_field(worker.map(|worker| worker.pid.into()), push_number, out);
        push_field(worker.map(|worker| worker.epoch), push_number, out);
        push_field(self.upstream.map(|upstream| upstream.queued), push_seconds, out);
        push_field(upstream.response_time, push_seconds, out);
        push_field(self.upstream.map(|upstream| upstream.retries().into()), push_number, out);
        let letter = self.ended().map_or('-', TerminationState::letter);
        out.extend_from_slice(&[b' ', letter as u8, b' ']);
        match upstream.session {
            Some(session) => push_session(session, out),
            None => out.push(b'-'),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":");
        push_timestamp(self.time, out);
        out.extend_from_slice(b",\"remote\":");
        push_remote(self.remote, out);
        push_text_unless_empty(b",\"app\":\"", self.app, out);
        push_text_unless_empty(b",\"host\":\"", self.host, out);
        push_text_unless_empty(b",\"user\":\"", self.user, out);
        push_text(b",\"method\":\"", self.method, out);
        push_text(b",\"path\":\"", cut(self.path), out);
        push_text(b",\"query\":\"", cut(self.query), out);
        push_integer(b",\"status\":", self.status.into(), out);
        push_integer(b",\"bytes\":", self.bytes, out);
        push_time(b",\"seconds\":", self.elapsed, out);
        // A request id consists of letters, digits, `.`, `_` and `-`.
        push_plain(b",\"request_id\":\"", self.request_id, out);
        let trace_id = self.trace_id.as_ref().map_or(&[][..], |id| id);
        push_plain(b",\"trace_id\":\"", trace_id, out);
        push_text_unless_empty(b",\"route\":\"", self.route, out);
        push_text_unless_empty(b",\"referer\":\"", self.referer, out);
        push_text_unless_empty(b",\"user_agent\":\"", self.user_agent, out);
        if let Some(r) = self.r {
            push_time(b",\"r_seconds\":", r, out);
        }
        if let Some(queue) = self.queue.filter(|_| self.upstream.is_none()) {
            push_time(b",\"queue_seconds\":", queue, out);
        }
        if let Some(reason) = self.aborted {
            out.extend_from_slice(b",\"aborted\":true");
            push_text(b",\"reason\":\"", reason.name().as_bytes(), out);
        }
        if let Some(upstream) = &self.upstream {
            self.write_upstream_json(upstream, out);
        }
        out.extend_from_slice(b"}\n");
    }

    /// Appends the data about the request's workers to `out` as members of a JSON object. Leaves
    /// out unknown values.
    fn write_upstream_json(&self, upstream: &UpstreamLog, out: &mut Vec<u8>) {
        push_worker(upstream, out);
        push_time(b",\"queue_seconds\":", upstream.queued, out);
        if let Some(took) = upstream.response_time {
            push_time(b",\"upstream_seconds\":", took, out);
        }
        push_integer(b",\"retries\":", upstream.retries().into(), out);
        if let Some(ended) = self.ended() {
            push_text(b",\"ended\":\"", &[ended.letter() as u8], out);
        }
        push_session_member(upstream, out);
    }
}

/// Appends the client's address as a JSON value.
pub(super) fn push_remote(remote: Option<SocketAddr>, out: &mut Vec<u8>) {
    match remote {
        Some(remote) => {
            out.push(b'"');
            push_address(remote.ip(), out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

/// Appends the worker of a request as members of a JSON object, if it is known.
pub(super) fn push_worker(upstream: &UpstreamLog, out: &mut Vec<u8>) {
    if let Some(worker) = upstream.worker {
        push_integer(b",\"slot\":", worker.slot.into(), out);
        push_integer(b",\"pid\":", worker.pid.into(), out);
        push_integer(b",\"epoch\":", worker.epoch, out);
    }
}

/// Appends the session of a request as a member of a JSON object, if it is known.
pub(super) fn push_session_member(upstream: &UpstreamLog, out: &mut Vec<u8>) {
    if let Some(session) = upstream.session {
        out.extend_from_slice(b",\"session\":\"");
        push_session(session, out);
        out.push(b'"');
    }
}

/// Appends a field of the Common or Combined Log Format, which is `-` if it is unknown.
pub(super) fn push_field<T>(value: Option<T>, push: fn(T, &mut Vec<u8>), out: &mut Vec<u8>) {
    out.push(b' ');
    match value {
        Some(value) => push(value, out),
        None => out.push(b'-'),
    }
}

// The functions below append members of a JSON object. `name` is all that precedes the value: the
// comma, the quoted name and the colon, for a text also the opening quote. Names that the compiler
// knows are copied without a call.

#[inline]
pub(super) fn push_integer<const N: usize>(name: &[u8; N], number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    push_number(number, out);
}

#[inline]
pub(super) fn push_time<const N: usize>(name: &[u8; N], time: Duration, out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    push_seconds(time, out);
}

#[inline]
pub(super) fn push_text<const N: usize>(name: &[u8; N], text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    escape_json(text, out);
    out.push(b'"');
}

/// Appends a text, unless it is empty.
#[inline]
pub(super) fn push_text_unless_empty<const N: usize>(
    name: &[u8; N],
    text: &[u8],
    out: &mut Vec<u8>,
) {
    if !text.is_empty() {
        push_text(name, text, out);
    }
}

/// Appends a text that needs no escaping, unless it is empty.
#[inline]
pub(super) fn push_plain<const N: usize>(name: &[u8; N], text: &[u8], out: &mut Vec<u8>) {
    if !text.is_empty() {
        out.extend_from_slice(name);
        out.extend_from_slice(text);
        out.push(b'"');
    }
}

fn push_session(session: u64, out: &mut Vec<u8>) {
    // Only requests of workers with sessions have one.
    let _ = write!(out, "{session:016x}");
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

pub(super) fn cut(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(PATH_BYTES)]
}

/// Appends bytes to a log line with escapes, so that a client cannot add lines or terminal escape
/// sequences to the log.
pub(super) fn escape_common(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..=0x7e => out.push(byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}
