//! A span: one operation of a trace, with its times and attributes.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rookery_exchange::TraceContext;

use crate::protobuf;

// The numbers of the fields of `Span`, `Link` and `Status` in OTLP's `trace.proto`.
const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const TRACE_STATE: u32 = 3;
const PARENT_SPAN_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const ATTRIBUTES: u32 = 9;
const EVENTS: u32 = 11;
const LINKS: u32 = 13;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;
const LINK_FLAGS: u32 = 6;
const STATUS_CODE: u32 = 3;
const EVENT_TIME: u32 = 1;
const EVENT_NAME: u32 = 2;
const EVENT_ATTRIBUTES: u32 = 3;

/// The number of `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// The flags which say that it is known whether the other span is remote, and that it is.
const HAS_IS_REMOTE: u32 = 1 << 8;
const IS_REMOTE: u32 = 1 << 9;

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operation within a program.
    Internal = 1,
    /// The handling of a request by a server.
    Server = 2,
}

/// The parent of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The id of the parent.
    pub span_id: [u8; 8],
    /// True if the parent is a span of another process.
    pub is_remote: bool,
}

/// A span that is recorded: one operation of a trace, with its times and attributes.
#[derive(Debug)]
pub struct Span {
    context: TraceContext,
    parent: Option<Parent>,
    trace_state: Vec<u8>,
    name: String,
    kind: Kind,
    start: SystemTime,
    since: Instant,
    /// The encoded attributes, events and links.
    details: Vec<u8>,
    is_error: bool,
}

impl Span {
    /// Begins a span now.
    pub fn begin(name: &str, kind: Kind, context: TraceContext, parent: Option<Parent>) -> Span {
        Span {
            context,
            parent,
            trace_state: Vec::new(),
            name: name.to_owned(),
            kind,
            start: SystemTime::now(),
            since: Instant::now(),
            details: Vec::new(),
            is_error: false,
        }
    }

    /// Returns the span with an earlier start.
    #[must_use]
    pub fn started_at(self, start: SystemTime, since: Instant) -> Span {
        Span { start, since, ..self }
    }

    /// Returns the identity of the span, which its children name as their parent.
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Sets the value of the `tracestate` header that came with the parent.
    pub fn set_trace_state(&mut self, value: &[u8]) {
        self.trace_state = value.to_vec();
    }

    /// Adds the route to the name of the span of a request, and as the attribute `http.route`.
    pub fn set_route(&mut self, route: &str) {
        self.name.push(' ');
        self.name.push_str(route);
        self.set_text("http.route", route);
    }

    /// Adds an attribute whose value is a text.
    pub fn set_text(&mut self, key: &str, value: &str) {
        protobuf::text_attribute(&mut self.details, ATTRIBUTES, key, value);
    }

    /// Adds an attribute whose value is a number.
    pub fn set_number(&mut self, key: &str, value: u64) {
        protobuf::integer_attribute(&mut self.details, ATTRIBUTES, key, value);
    }

    /// Adds a link to a span of this process or of another one.
    pub fn link(&mut self, other: &TraceContext) {
        let mut link = Vec::with_capacity(40);
        protobuf::bytes(&mut link, TRACE_ID, &other.trace_id);
        protobuf::bytes(&mut link, SPAN_ID, &other.span_id);
        protobuf::fixed32(&mut link, LINK_FLAGS, other.flags.into());
        protobuf::bytes(&mut self.details, LINKS, &link);
    }

    /// Adds an event that happens now, with one attribute.
    pub fn add_event(&mut self, name: &str, key: &str, value: &str) {
        let now = self.start.duration_since(UNIX_EPOCH).unwrap_or_default() + self.since.elapsed();
        let mut event = Vec::with_capacity(name.len() + key.len() + value.len() + 32);
        protobuf::fixed64(&mut event, EVENT_TIME, now.as_nanos() as u64);
        protobuf::bytes(&mut event, EVENT_NAME, name.as_bytes());
        protobuf::text_attribute(&mut event, EVENT_ATTRIBUTES, key, value);
        protobuf::bytes(&mut self.details, EVENTS, &event);
    }

    /// Marks the operation as failed. `error_type` is the value of the attribute `error.type`.
    pub fn set_error(&mut self, error_type: &str) {
        self.set_text("error.type", error_type);
        self.is_error = true;
    }

    /// Marks the operation as failed by an exception of the class `class`, and adds the event of
    /// the exception (OpenTelemetry's semantic conventions for exceptions on spans). The message of
    /// an exception may quote what a client has sent in confidence, so it is left out.
    pub fn set_exception(&mut self, class: &str) {
        self.add_event("exception", "exception.type", class);
        // A span has one status and one type of error, the first one.
        if !self.is_error {
            self.set_error(class);
        }
    }

    /// Returns the encoded span, which ends now.
    pub(crate) fn encode(self) -> Vec<u8> {
        // The end is the start and the time that has passed, because the wall clock may be set.
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default();
        let end = start + self.since.elapsed();
        let mut out = Vec::with_capacity(self.details.len() + self.name.len() + 128);
        protobuf::bytes(&mut out, TRACE_ID, &self.context.trace_id);
        protobuf::bytes(&mut out, SPAN_ID, &self.context.span_id);
        if !self.trace_state.is_empty() {
            protobuf::bytes(&mut out, TRACE_STATE, &self.trace_state);
        }
        let mut flags = u32::from(self.context.flags);
        if let Some(parent) = self.parent {
            protobuf::bytes(&mut out, PARENT_SPAN_ID, &parent.span_id);
            flags |= HAS_IS_REMOTE | if parent.is_remote { IS_REMOTE } else { 0 };
        }
        protobuf::bytes(&mut out, NAME, self.name.as_bytes());
        protobuf::number(&mut out, KIND, self.kind as u64);
        protobuf::fixed64(&mut out, START, start.as_nanos() as u64);
        protobuf::fixed64(&mut out, END, end.as_nanos() as u64);
        out.extend_from_slice(&self.details);
        if self.is_error {
            let mut status = Vec::new();
            protobuf::number(&mut status, STATUS_CODE, ERROR);
            protobuf::bytes(&mut out, STATUS, &status);
        }
        protobuf::fixed32(&mut out, FLAGS, flags);
        out
    }
}
