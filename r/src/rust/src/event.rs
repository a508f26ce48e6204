//! Converts the server's events to the C type `struct rk_event`. Also contains the functions with
//! which R waits for events.

use std::time::Duration;

use rookery_exchange::{BodySource, Command, Event, Exchange, HeaderLine, MessageKind, Payload};
use rookery_worker_protocol::RState;

use crate::core::{self, Core};
use crate::exchange::header_names::{Header, HeaderNames, Interned};
use crate::{Bytes, entry};

/// Returns the descriptor by whose name R may open the file of a spooled body. On Windows, no file
/// has such a name, so R copies the body.
fn descriptor_of(file: &std::fs::File) -> i32 {
    #[cfg(unix)]
    return std::os::fd::AsRawFd::as_raw_fd(file);
    #[cfg(windows)]
    {
        let _ = file;
        i32::MAX
    }
}

/// An event of the server as C reads it: `struct rk_event`.
#[derive(Debug)]
#[repr(C)]
pub struct RawEvent {
    kind: i32,
    listener: u32,
    slot: u32,
    code: i32,
    id: u64,
    token: u64,
    method: Bytes,
    path: Bytes,
    query: Bytes,
    remote_addr: Bytes,
    remote_port: Bytes,
    local_addr: Bytes,
    local_port: Bytes,
    headers: *const Header,
    header_count: usize,
    body_len: u64,
    body_fd: i32,
    is_text: i32,
    data: Bytes,
    is_https: i32,
    has_client_certificate: i32,
    has_supervisor_request_id: i32,
    has_trace_request_id: i32,
    is_head_seen: i32,
    is_route_used: i32,
    span: u64,
}

// The layout is the same as in rookery.h.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Header>() == 56 && offset_of!(Header, symbol) == 48);
    assert!(
        size_of::<RawEvent>() == 224
            && offset_of!(RawEvent, id) == 16
            && offset_of!(RawEvent, method) == 32
    );
    assert!(offset_of!(RawEvent, headers) == 144 && offset_of!(RawEvent, body_fd) == 168);
    assert!(offset_of!(RawEvent, data) == 176 && offset_of!(RawEvent, is_https) == 192);
    assert!(offset_of!(RawEvent, span) == 216);
};

impl RawEvent {
    const fn new(kind: i32) -> RawEvent {
        RawEvent {
            kind,
            listener: 0,
            slot: 0,
            code: 0,
            id: 0,
            token: 0,
            method: Bytes::EMPTY,
            path: Bytes::EMPTY,
            query: Bytes::EMPTY,
            remote_addr: Bytes::EMPTY,
            remote_port: Bytes::EMPTY,
            local_addr: Bytes::EMPTY,
            local_port: Bytes::EMPTY,
            headers: std::ptr::null(),
            header_count: 0,
            body_len: 0,
            body_fd: -1,
            is_text: 0,
            data: Bytes::EMPTY,
            is_https: 0,
            has_client_certificate: 0,
            has_supervisor_request_id: 0,
            has_trace_request_id: 0,
            is_head_seen: 0,
            span: 0,
            is_route_used: 0,
        }
    }
}

const REQUEST: i32 = 1;
const HANDSHAKE: i32 = 2;
const WS_MESSAGE: i32 = 3;
const WS_CLOSED: i32 = 4;
const WS_DRAINED: i32 = 5;
const HEAD: i32 = 6;
const STREAM_PULL: i32 = 7;
const STREAM_DRAINED: i32 = 8;
const STREAM_ENDED: i32 = 9;
const BODY_CHUNK: i32 = 10;
const BODY_END: i32 = 11;

/// Returns the index of R's symbol for the CGI name of a header, such as `HTTP_X_NAME`. Returns -1
/// if the header has no symbol.
fn symbol(names: &mut HeaderNames, before: &[Header], header: &HeaderLine<'_>) -> i32 {
    if let Some(known) = header.known {
        return i32::from(known);
    }
    if header.cgi.is_empty() {
        return -1;
    }
    let previous = before.last().map_or(-1, |header| header.symbol);
    match names.intern_after(previous, header.cgi) {
        Interned::Index(index) => index,
        Interned::FirstRefused => {
            crate::write_log_line(&format!(
                "clients have sent more than {} different header names; `req$` and `req[[` find \
                 headers with new ones, ls(req) and get() do not",
                crate::exchange::header_names::MAX_NAMES
            ));
            -1
        }
        Interned::Refused => -1,
    }
}

impl Core {
    /// Returns true if the route of a request is counted, logged or part of a span. In the
    /// environment of a request, a search for a variable that does not exist takes long.
    fn uses_routes(&self) -> bool {
        self.log.open.is_some() || self.tracing.tracer.is_some() || self.scoreboard().is_some()
    }

    fn raw_exchange(&mut self, kind: i32, mut exchange: Box<Exchange>) -> RawEvent {
        let mut event = RawEvent::new(kind);
        event.listener = exchange.listener();
        event.id = exchange.id();
        event.token = exchange.take_app_token();
        self.headers.clear();
        for header in exchange.headers() {
            let symbol = symbol(&mut self.names, &self.headers, &header);
            self.headers.push(Header {
                name: Bytes::of(header.name),
                cgi: Bytes::of(header.cgi),
                value: Bytes::of(header.value),
                symbol,
            });
        }
        event.headers = self.headers.as_ptr();
        event.header_count = self.headers.len();
        event.method = Bytes::of(exchange.method());
        event.path = Bytes::of(exchange.path());
        event.query = Bytes::of(exchange.query());
        self.remote.set(exchange.remote());
        self.local.set(exchange.local());
        event.remote_addr = Bytes::of(&self.remote.addr);
        event.remote_port = Bytes::of(&self.remote.port);
        event.local_addr = Bytes::of(&self.local.addr);
        event.local_port = Bytes::of(&self.local.port);
        event.is_https = i32::from(exchange.is_https());
        event.has_client_certificate = i32::from(exchange.client().is_some());
        event.has_supervisor_request_id = i32::from(exchange.has_supervisor_request_id());
        event.has_trace_request_id = i32::from(exchange.has_trace_request_id());
        event.is_head_seen = i32::from(exchange.is_head_seen());
        event.is_route_used = i32::from(self.uses_routes());
        event.body_len = exchange.body().len();
        if let BodySource::File(file) = exchange.body().source() {
            event.body_fd = descriptor_of(file);
        }
        // The exchange is boxed, so these bytes stay at their address while R holds it.
        event.slot = self.hold(exchange);
        event
    }

    fn raw_message(
        &mut self,
        socket: u64,
        listener: u32,
        kind: MessageKind,
        payload: Payload,
    ) -> RawEvent {
        let mut event = RawEvent::new(WS_MESSAGE);
        event.listener = listener;
        event.id = socket;
        event.token = self.token(socket);
        event.is_text = i32::from(kind == MessageKind::Text);
        let payload = self.shown_payload.insert(payload);
        event.data = Bytes::of(payload.as_bytes());
        event
    }

    fn raw_event(&mut self, event: Event) -> RawEvent {
        match event {
            Event::Request(exchange) if exchange.is_upgrade() => {
                self.raw_exchange(HANDSHAKE, exchange)
            }
            Event::Request(exchange) => self.raw_exchange(REQUEST, exchange),
            Event::Head(exchange) => self.raw_exchange(HEAD, exchange),
            Event::Message { socket, listener, kind, payload } => {
                self.raw_message(socket, listener, kind, payload)
            }
            Event::Closed { socket, listener, code, reason, is_clean } => {
                let mut event = RawEvent::new(WS_CLOSED);
                event.listener = listener;
                event.id = socket;
                event.token = self.token(socket);
                event.code = i32::from(code);
                event.is_text = i32::from(is_clean);
                let reason =
                    self.shown_payload.insert(Payload::Pooled(String::from(reason).into_bytes()));
                event.data = Bytes::of(reason.as_bytes());
                event
            }
            Event::Drained { socket, listener } => {
                let mut event = RawEvent::new(WS_DRAINED);
                event.listener = listener;
                event.id = socket;
                event.token = self.token(socket);
                event
            }
            Event::Body { exchange: call, listener, payload } => {
                let mut event = self.raw_body_event(BODY_CHUNK, call, listener);
                let payload = self.shown_payload.insert(payload);
                event.data = Bytes::of(payload.as_bytes());
                event
            }
            Event::BodyEnd { exchange: call, listener, reason } => {
                let mut event = self.raw_body_event(BODY_END, call, listener);
                event.code = reason as i32;
                self.receivers.remove(&call);
                event
            }
            Event::Pull { stream, listener } => {
                self.raw_stream_event(STREAM_PULL, stream, listener)
            }
            Event::Writable { stream, listener } => {
                self.raw_stream_event(STREAM_DRAINED, stream, listener)
            }
            Event::StreamEnded { stream, listener, reason } => {
                let mut event = self.raw_stream_event(STREAM_ENDED, stream, listener);
                event.code = reason as i32;
                self.streams.remove(&stream);
                event
            }
        }
    }

    fn raw_body_event(&self, kind: i32, call: u64, listener: u32) -> RawEvent {
        let mut event = RawEvent::new(kind);
        event.listener = listener;
        event.id = call;
        if let Some(receiver) = self.receivers.get(&call) {
            (event.slot, event.token) = (receiver.slot, receiver.token);
        }
        event
    }

    fn raw_stream_event(&self, kind: i32, stream: u64, listener: u32) -> RawEvent {
        let mut event = RawEvent::new(kind);
        event.listener = listener;
        event.id = stream;
        event.token = self.streams.get(&stream).map_or(0, |streamed| streamed.token);
        event
    }

    fn next(&mut self) -> Option<RawEvent> {
        if let Some(buffer) = self.shown_payload.take().and_then(Payload::into_buffer) {
            self.link.recycle(buffer);
        }
        loop {
            let Some(event) = self.next_event() else { return self.next_pull() };
            match event {
                // The client has disconnected, so R is not called.
                Event::Request(exchange) | Event::Head(exchange)
                    if exchange.is_client_disconnected() =>
                {
                    self.skip_request();
                    self.return_exchange(Command::Respond(exchange));
                }
                mut event => {
                    if self.begin_event(&mut event) && !self.refuse_origin(&mut event) {
                        let span = self.begin_span(&mut event);
                        return Some(RawEvent { span, ..self.raw_event(event) });
                    }
                    if let Event::Request(exchange) | Event::Head(exchange) = event {
                        self.return_exchange(Command::Respond(exchange));
                    }
                }
            }
        }
    }
}

impl Core {
    /// Takes the first streamed response from `pull_queue`. Returns an event that makes C get the
    /// next chunk of this response from the app, as if the server had requested it. Returns `None`
    /// if the queue is empty.
    fn next_pull(&mut self) -> Option<RawEvent> {
        loop {
            let id = self.pull_queue.pop_front()?;
            // The end of a stream has an event of its own.
            if self.streams.get(&id).is_some_and(|streamed| !streamed.is_over()) {
                // R may have worked on another request since.
                self.show_task(&Event::Pull { stream: id, listener: 0 });
                return Some(self.raw_stream_event(STREAM_PULL, id, 0));
            }
        }
    }
}

/// Empties `pull_queue`, the queue of streamed responses whose next chunks R gets from the app
/// before the server requests them. The server then requests these chunks. Must be called before R
/// does other work.
#[unsafe(no_mangle)]
pub extern "C" fn rk_streams_yield() {
    entry((), || {
        core::with(|core| {
            while let Some(stream) = core.pull_queue.pop_front() {
                core.send(Command::ResumePulls { stream });
            }
        });
    });
}

/// Takes the next event from the queue for R and writes it to `event`. Returns 0 if the queue is
/// empty.
///
/// # Safety
/// - `event` points to a `struct rk_event`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_next(event: *mut RawEvent) -> i32 {
    entry(0, || {
        let Some(next) = core::with(Core::next) else { return 0 };
        // SAFETY: guaranteed by the caller; `RawEvent` has the layout of `struct rk_event` and no
        // destructor.
        unsafe { event.write(next) };
        1
    })
}

/// Returns 1 if no event waits for R, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_is_empty() -> i32 {
    entry(1, || i32::from(core::with(|core| core.link.is_empty())))
}

/// Returns the number of events that R has taken from the queue.
#[unsafe(no_mangle)]
pub extern "C" fn rk_event_count() -> u64 {
    entry(0, || core::with(|core| core.link.all_taken()))
}

/// Waits for an event for at most `seconds`. Returns 1 if an event is queued, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_wait(seconds: f64) -> i32 {
    entry(0, || {
        let timeout = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let came = core::with(|core| {
            core.set_r_activity(RState::Idle);
            core.flush();
            let came = core.link.wait(timeout);
            core.set_r_activity(RState::Busy);
            came
        });
        i32::from(came)
    })
}

/// Returns 1 if the server's I/O thread has ended unexpectedly, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn rk_has_failed() -> i32 {
    entry(0, || i32::from(core::with(|core| core.link.has_failed())))
}

/// Sets the error message of `rk_error` to the reason why the I/O thread has ended, and returns 1.
/// Returns 0 if the thread still runs, or if the reason was already reported.
#[unsafe(no_mangle)]
pub extern "C" fn rk_take_failure() -> i32 {
    entry(0, || {
        let Some(reason) = core::with(|core| core.link.take_failure()) else { return 0 };
        core::set_error(&reason);
        1
    })
}

/// Makes the I/O thread panic, for tests.
#[unsafe(no_mangle)]
pub extern "C" fn rk_fail_for_test() {
    entry((), || core::with(|core| core.server().panic_io_thread()));
}

/// Announces that R begins to wait for events by means other than `rk_wait`. Returns 0 if an event
/// is queued already, so that R must not wait.
#[unsafe(no_mangle)]
pub extern "C" fn rk_park() -> i32 {
    entry(0, || {
        let may = core::with(|core| {
            core.flush();
            let may = core.link.try_park();
            if may {
                core.set_r_activity(RState::Idle);
            }
            may
        });
        i32::from(may)
    })
}

/// Announces that R has stopped waiting for events, after `rk_park`.
#[unsafe(no_mangle)]
pub extern "C" fn rk_resume() {
    entry((), || {
        core::with(|core| {
            core.link.resume();
            core.set_r_activity(RState::Busy);
        });
    });
}

/// Announces that the app runs code of its own after `service()` has processed an event. What Shiny
/// computes there still counts as time of a message of a WebSocket.
#[unsafe(no_mangle)]
pub extern "C" fn rk_between() {
    entry((), || {
        core::with(|core| {
            core.link.resume();
            if core.scoreboard().is_some_and(|it| it.read().r_state != RState::Messages) {
                core.set_r_activity(RState::Busy);
            }
        });
    });
}

/// Announces that R has ended its task and begins another one of the same kind, because an observer
/// of Shiny was interrupted and the flush continues with the next observer.
#[unsafe(no_mangle)]
pub extern "C" fn rk_task_ended() {
    entry((), || {
        core::with(|core| {
            if let Some(state) = core.scoreboard().map(|it| it.read().r_state) {
                core.set_r_activity(state);
            }
        });
    });
}

/// Wakes the I/O thread, so that it sends what R has queued, such as responses.
#[unsafe(no_mangle)]
pub extern "C" fn rk_flush() {
    entry((), || core::with(core::Core::flush));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_name_with_an_underscore_gets_no_symbol() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(b"GET", b"/", rookery_exchange::Version::Http11);
        let lines = [
            "x_a-b",
            "x-a-b",
            "x-a_b",
            "x_forwarded_for",
            "x-forwarded-for",
            "only_one",
            "content_type",
            "x-c",
            "host",
        ];
        for name in lines {
            exchange.push_header(name.as_bytes(), b"value");
        }
        exchange.end_head(None, None, false);
        let (mut names, mut shown, mut bound) = (HeaderNames::new(), Vec::new(), Vec::new());
        for header in exchange.headers() {
            let symbol = symbol(&mut names, &shown, &header);
            let text = Bytes::of(header.name);
            shown.push(Header { name: text, cgi: text, value: text, symbol });
            if symbol >= 0 {
                bound.push(String::from_utf8(header.name.to_vec()).unwrap());
            }
        }
        assert_eq!(bound, ["host", "x-a-b", "x-c", "x-forwarded-for"]);
        assert_eq!(shown.len(), lines.len());
    }
}
