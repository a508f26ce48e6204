//! A collector of OpenTelemetry for tests, which receives spans by OTLP/HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::wait_until;

/// A span that the test collector has received.
#[derive(Debug, Clone, Default)]
pub struct CollectedSpan {
    /// The trace id in hexadecimal.
    pub trace_id: String,
    /// The span's own id in hexadecimal.
    pub span_id: String,
    /// The parent's id in hexadecimal; empty for the first span of a trace.
    pub parent_span_id: String,
    /// The value of `tracestate`.
    pub trace_state: String,
    /// The name of the span.
    pub name: String,
    /// The number of the span's kind: 1 for internal, 2 for server.
    pub kind: u64,
    /// The start in nanoseconds since the Unix epoch.
    pub start: u64,
    /// The end in nanoseconds since the Unix epoch.
    pub end: u64,
    /// The attributes; numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// The time, the name and the attributes of each event.
    pub events: Vec<(u64, String, BTreeMap<String, String>)>,
    /// The trace id and the span id of each link.
    pub links: Vec<(String, String)>,
    /// The code of the status: 2 for an error.
    pub status: u64,
    /// The flags.
    pub flags: u64,
    /// The attributes of the process that has made the span.
    pub resource: BTreeMap<String, String>,
    /// The names of those attributes whose value is a number.
    pub resource_numbers: BTreeSet<String>,
}

/// The response of the test collector to one request.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Header lines, each with CR and LF.
    pub headers: String,
    /// The body.
    pub body: Vec<u8>,
    /// The time before the answer.
    pub delay: Duration,
}

/// A collector of OpenTelemetry, which listens on a port of its own until the test process ends.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    spans: Vec<CollectedSpan>,
    heads: Vec<String>,
    connections: usize,
    answers: Vec<Answer>,
}

impl Collector {
    /// Starts a collector. It gives the `answers` in their order, and the last one to all further
    /// requests; without any, it accepts everything. Spans of answers other than 200 are not kept.
    ///
    /// # Panics
    /// Panics if there is no free port.
    pub fn start(answers: &[Answer]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a TCP socket");
        let answers = answers.iter().rev().cloned().collect();
        let state = Arc::new(Mutex::new(State { answers, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                lock(&shared).connections += 1;
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Collector { address, state }
    }

    /// Returns the collector's URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the spans that have arrived.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        lock(&self.state).spans.clone()
    }

    /// Returns the heads of the requests that have arrived.
    pub fn heads(&self) -> Vec<String> {
        lock(&self.state).heads.clone()
    }

    /// Returns the number of connections that were opened.
    pub fn connections(&self) -> usize {
        lock(&self.state).connections
    }

    /// Waits until `count` spans have arrived, and returns them.
    ///
    /// # Panics
    /// Panics if that takes too long.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<CollectedSpan> {
        wait_until(&format!("{count} spans"), || lock(&self.state).spans.len() >= count);
        self.spans()
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one connection. A malformed request ends it.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length?];
        reader.read_exact(&mut body).ok()?;
        let answer = {
            let mut state = lock(state);
            state.heads.push(head);
            if state.answers.len() > 1 {
                state.answers.pop()
            } else {
                state.answers.last().cloned()
            }
        };
        let answer = answer.unwrap_or(Answer { status: 200, ..Answer::default() });
        std::thread::sleep(answer.delay);
        if answer.status == 200 {
            let spans = decode(&body)?;
            lock(state).spans.extend(spans);
        }
        let mut out = format!(
            "HTTP/1.1 {} x\r\n{}content-length: {}\r\n\r\n",
            answer.status,
            answer.headers,
            answer.body.len()
        )
        .into_bytes();
        out.extend_from_slice(&answer.body);
        let mut stream = stream;
        stream.write_all(&out).ok()?;
    }
}

/// Decodes an `ExportTraceServiceRequest` in protobuf.
fn decode(request: &[u8]) -> Option<Vec<CollectedSpan>> {
    let mut spans = Vec::new();
    for resource_spans in messages(request, 1)? {
        let message = *messages(resource_spans, 1)?.first()?;
        let (resource, numbers) = (attributes(message, 1)?, number_names(message, 1)?);
        for scope_spans in messages(resource_spans, 2)? {
            for span in messages(scope_spans, 2)? {
                spans.push(CollectedSpan {
                    resource: resource.clone(),
                    resource_numbers: numbers.clone(),
                    ..decode_span(span)?
                });
            }
        }
    }
    Some(spans)
}

fn decode_span(message: &[u8]) -> Option<CollectedSpan> {
    let mut span =
        CollectedSpan { attributes: attributes(message, 9)?, ..CollectedSpan::default() };
    for (field, value) in fields(message)? {
        match (field, value) {
            (1, Value::Bytes(id)) => span.trace_id = hex(id),
            (2, Value::Bytes(id)) => span.span_id = hex(id),
            (3, Value::Bytes(text)) => span.trace_state = text_of(text)?,
            (4, Value::Bytes(id)) => span.parent_span_id = hex(id),
            (5, Value::Bytes(text)) => span.name = text_of(text)?,
            (6, Value::Number(kind)) => span.kind = kind,
            (7, Value::Number(time)) => span.start = time,
            (8, Value::Number(time)) => span.end = time,
            (11, Value::Bytes(event)) => {
                let name = text_of(messages(event, 2)?.first()?)?;
                let time = fields(event)?.into_iter().find_map(|it| match it {
                    (1, Value::Number(time)) => Some(time),
                    _ => None,
                });
                span.events.push((time?, name, attributes(event, 3)?));
            }
            (13, Value::Bytes(link)) => {
                let id = |field| Some(hex(messages(link, field)?.first()?));
                span.links.push((id(1)?, id(2)?));
            }
            (15, Value::Bytes(status)) => {
                for (field, value) in fields(status)? {
                    if let (3, Value::Number(code)) = (field, value) {
                        span.status = code;
                    }
                }
            }
            (16, Value::Number(flags)) => span.flags = flags,
            _ => {}
        }
    }
    Some(span)
}

/// Returns the attributes in the fields with this number. No name may occur twice.
fn attributes(message: &[u8], field: u64) -> Option<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for pair in messages(message, field)? {
        let key = text_of(messages(pair, 1)?.first()?)?;
        let any = *messages(pair, 2)?.first()?;
        let value = match *fields(any)?.first()? {
            (1, Value::Bytes(text)) => text_of(text)?,
            (3, Value::Number(number)) => number.to_string(),
            _ => return None,
        };
        if all.insert(key, value).is_some() {
            return None;
        }
    }
    Some(all)
}

/// Returns the names of the attributes in these fields whose value is a number.
fn number_names(message: &[u8], field: u64) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for pair in messages(message, field)? {
        let any = *messages(pair, 2)?.first()?;
        if matches!(fields(any)?.first()?, (3, Value::Number(_))) {
            names.insert(text_of(messages(pair, 1)?.first()?)?);
        }
    }
    Some(names)
}

#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Returns the messages in the fields with this number.
fn messages(message: &[u8], field: u64) -> Option<Vec<&[u8]>> {
    let all = fields(message)?.into_iter().filter(|(number, _)| *number == field);
    all.map(|(_, value)| match value {
        Value::Bytes(bytes) => Some(bytes),
        Value::Number(_) => None,
    })
    .collect()
}

fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let mut take = |len: usize| {
            let (taken, rest) = message.split_at_checked(len)?;
            message = rest;
            Some(taken)
        };
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            1 => Value::Number(u64::from_le_bytes(take(8)?.try_into().ok()?)),
            2 => {
                let len = varint(&mut message)?;
                let (bytes, rest) = message.split_at_checked(usize::try_from(len).ok()?)?;
                message = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Number(u32::from_le_bytes(take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let end = message.iter().position(|byte| *byte < 0x80)?;
    let (bytes, rest) = message.split_at(end + 1);
    *message = rest;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7F)))
}

fn text_of(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
