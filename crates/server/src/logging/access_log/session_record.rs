//! The record of a WebSocket that has not ended yet, for a log of JSON objects.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use rookery_exchange::{Exchange, RequestId, UpstreamLog, write_masked};

use super::AccessLog;
use super::pending_record::{CLIENT_BYTES, CurrentLog};
use super::record::{
    PATH_BYTES, push_integer, push_plain, push_remote, push_session_member, push_text,
    push_text_unless_empty, push_time, push_worker,
};
use crate::logging::json_lines::push_timestamp;

/// The record of an open WebSocket. At the end of the WebSocket it becomes one line of the log,
/// besides the line of the handshake.
pub(crate) struct SessionRecord {
    log: Arc<AccessLog>,
    since: Instant,
    remote: Option<SocketAddr>,
    host: Box<[u8]>,
    user: Box<[u8]>,
    path: Vec<u8>,
    request_id: RequestId,
    upstream: UpstreamLog,
    received: Traffic,
    sent: Traffic,
}

/// The messages in one direction.
#[derive(Default)]
struct Traffic {
    messages: Cell<u64>,
    /// The bytes of the messages, without frames and before compression.
    bytes: Cell<u64>,
}

impl Traffic {
    fn add(&self, bytes: usize) {
        self.messages.set(self.messages.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}

impl SessionRecord {
    /// Begins the record of a WebSocket that the application has accepted. Returns `None` unless
    /// there is a log of JSON objects.
    pub(crate) fn begin(log: &CurrentLog, exchange: &Exchange) -> Option<Box<SessionRecord>> {
        let log = log.get().filter(|log| log.is_json())?;
        let cut = |text: &[u8]| text[..text.len().min(CLIENT_BYTES)].into();
        let mut path = Vec::new();
        write_masked(exchange.path(), PATH_BYTES, &mut path);
        Some(Box::new(SessionRecord {
            log,
            since: Instant::now(),
            remote: exchange.remote(),
            host: cut(exchange.header(b"host").unwrap_or_default()),
            user: cut(exchange.client().map_or(&[], |client| client.subject.as_bytes())),
            path,
            request_id: exchange.request_id(),
            upstream: exchange.upstream_log().unwrap_or_default(),
            received: Traffic::default(),
            sent: Traffic::default(),
        }))
    }

    /// Counts a message from the client.
    pub(crate) fn on_received(&self, bytes: usize) {
        self.received.add(bytes);
    }

    /// Counts a message to the client.
    pub(crate) fn on_sent(&self, bytes: usize) {
        self.sent.add(bytes);
    }

    /// Writes the line about the end of the WebSocket, with its close code.
    pub(crate) fn end(&self, code: u16) {
        self.log.write_line(|line| self.write_json(SystemTime::now(), code, line));
    }

    fn write_json(&self, time: SystemTime, code: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":");
        push_timestamp(time, out);
        out.extend_from_slice(b",\"event\":\"session_end\",\"remote\":");
        push_remote(self.remote, out);
        push_text_unless_empty(b",\"app\":\"", self.log.app().as_bytes(), out);
        push_text_unless_empty(b",\"host\":\"", &self.host, out);
        push_text_unless_empty(b",\"user\":\"", &self.user, out);
        push_text(b",\"path\":\"", &self.path, out);
        push_plain(b",\"request_id\":\"", self.request_id.as_bytes(), out);
        push_time(b",\"seconds\":", self.since.elapsed(), out);
        push_integer(b",\"close_code\":", code.into(), out);
        push_integer(b",\"messages_received\":", self.received.messages.get(), out);
        push_integer(b",\"bytes_received\":", self.received.bytes.get(), out);
        push_integer(b",\"messages_sent\":", self.sent.messages.get(), out);
        push_integer(b",\"bytes_sent\":", self.sent.bytes.get(), out);
        push_worker(&self.upstream, out);
        push_session_member(&self.upstream, out);
        out.extend_from_slice(b"}\n");
    }
}

impl std::fmt::Debug for SessionRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionRecord").finish_non_exhaustive()
    }
}
