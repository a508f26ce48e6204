//! An exchange: one request and its response, whose data is stored in one arena (memory that is
//! freed all at once).

use std::alloc::Layout;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use rookery_arena::Arena;
use rookery_fairness::Peer;

pub(crate) mod app_times;
mod arena_slice;
pub(crate) mod body_buffer;
pub(crate) mod header_names;
mod header_sort;
pub(crate) mod request_body;
mod request_head;
pub(crate) mod response;
pub(crate) mod status;
mod trace_headers;
pub(crate) mod upstream_log;

use self::app_times::AppTimes;
use self::arena_slice::ArenaSlice;
use self::header_names::StoredHeader;
use self::request_body::RequestBody;
use self::response::{HeaderError, Response, ResponseBody};
use self::status::ExchangeStatus;
use self::upstream_log::UpstreamLog;
use crate::budget::{Budget, Charge, Share};
use crate::ids::{ExchangeId, ListenerId};
use crate::payload::AppToken;
use crate::request_id::RequestId;
use crate::stream_flow_control::StreamedBody;
use crate::trace_context::TraceContext;
use crate::websocket_backlog::SendBacklog;

/// The identity of a client, taken from its verified TLS certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject of the client's certificate in the notation of RFC 4514, such as
    /// `CN=Ada,O=Analytical Engines`.
    pub subject: String,
    /// The SHA-256 fingerprint of the client's certificate, in hexadecimal.
    pub fingerprint: String,
}

/// The HTTP version of a request, as the application sees it. HTTP/2 counts as HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1 and later.
    #[default]
    Http11,
}

/// A request and its response. An exchange has one owner at a time. The server stores the request
/// in it, the application stores the response in it, and the server sends the response and keeps
/// the exchange for a later request. Code that does not own the exchange can only use its
/// [`shared_status`](Exchange::shared_status).
///
/// # Allocation
/// The head, a body in memory and the response are stored in the exchange's arena.
/// [`reset`](Exchange::reset) keeps this memory, so that later requests of usual size need no
/// further allocation.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of a request that have nothing to do with each other"
)]
pub struct Exchange {
    id: ExchangeId,
    listener: ListenerId,
    /// The client to which the server attributes the request.
    peer: Peer,
    /// The index of the request in the server's table of requests in flight.
    slot: u32,
    tag: Option<AppToken>,
    /// The request's ticket: a number by which the supervisor follows the request while a worker
    /// processes it; 0 without a supervisor.
    ticket: u64,
    /// The time at which the request was queued for the application; 0 if such times are not
    /// measured.
    queued_at: u64,
    /// The time at which the application began to process the request; 0 if such times are not
    /// measured.
    started_at: u64,
    /// The id that the request has in the supervisor's log; empty without a supervisor.
    supervisor_request_id: ArenaSlice,
    /// The route of the request, as the application has set it; empty if it has not.
    route: ArenaSlice,
    app_times: Option<AppTimes>,
    /// The context in the `traceparent` header if the server has set the header, so that the header
    /// need not be parsed.
    trace: Option<TraceContext>,
    version: Version,
    is_upgrade: bool,
    /// The counters of the bytes that are waiting to be sent to the WebSocket; `None` unless the
    /// request is the opening handshake of a WebSocket.
    backlog: Option<Arc<SendBacklog>>,
    method: ArenaSlice,
    path: ArenaSlice,
    query: ArenaSlice,
    remote: Endpoint,
    local: Endpoint,
    is_https: bool,
    is_from_trusted_proxy: bool,
    is_head_seen: bool,
    client: Option<Arc<ClientCertificate>>,
    headers: Vec<StoredHeader>,
    body: RequestBody,
    response: Response,
    status: Arc<ExchangeStatus>,
    is_logged: bool,
    /// True from a [`reset`](Exchange::reset) until the exchange is used for the next request.
    is_reset: bool,
    /// The bytes of this exchange (a request with its response) that are charged to the memory
    /// budget; `None` unless the exchange is large.
    charge: Option<Charge>,
    // The last field, so that it is dropped after all fields that point into it.
    arena: Arena,
}

impl Exchange {
    /// Creates an empty exchange, which can hold one request and its response. The server creates
    /// one for each request in flight and reuses it for later requests.
    pub fn new() -> Box<Exchange> {
        Box::new(Exchange {
            id: 0,
            listener: 0,
            peer: Peer::default(),
            slot: 0,
            tag: None,
            ticket: 0,
            queued_at: 0,
            started_at: 0,
            supervisor_request_id: ArenaSlice::EMPTY,
            route: ArenaSlice::EMPTY,
            app_times: None,
            trace: None,
            version: Version::Http11,
            is_upgrade: false,
            backlog: None,
            method: ArenaSlice::EMPTY,
            path: ArenaSlice::EMPTY,
            query: ArenaSlice::EMPTY,
            remote: Endpoint::default(),
            local: Endpoint::default(),
            is_https: false,
            is_from_trusted_proxy: false,
            is_head_seen: false,
            client: None,
            headers: Vec::with_capacity(INITIAL_HEADERS),
            body: RequestBody::default(),
            response: Response::default(),
            status: Arc::default(),
            is_logged: false,
            is_reset: true,
            charge: None,
            arena: Arena::with_chunk_size(FIRST_CHUNK),
        })
    }

    /// Prepares the exchange for a new request. `slot` is its index in the server's table of
    /// requests in flight.
    pub fn begin(&mut self, id: ExchangeId, listener: ListenerId, slot: u32) {
        if self.is_reset {
            self.renew_status();
        } else {
            self.reset();
        }
        self.is_reset = false;
        self.id = id;
        self.listener = listener;
        self.peer = Peer::default();
        self.slot = slot;
    }

    /// Records the client to which the server attributes the request when it divides places and
    /// time among clients.
    pub fn set_peer(&mut self, peer: Peer) {
        self.peer = peer;
    }

    /// Returns the client to which the server attributes the request. It is the same for all
    /// requests if none was [recorded](Self::set_peer).
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Records whether the client used `https`, and the client's certificate if it sent one. Behind
    /// a trusted proxy, the proxy's header determines whether the client used `https`.
    pub fn set_transport(&mut self, is_https: bool, client: Option<Arc<ClientCertificate>>) {
        self.is_https = is_https;
        self.client = client;
    }

    /// Records whether the request comes from a trusted proxy.
    pub fn set_from_trusted_proxy(&mut self, is_from_trusted_proxy: bool) {
        self.is_from_trusted_proxy = is_from_trusted_proxy;
    }

    /// Records that the application has already inspected the head of the request and wants the
    /// body.
    pub fn set_head_seen(&mut self) {
        self.is_head_seen = true;
    }

    /// Returns true if the application had already inspected the head of this request before the
    /// request was sent to this process. An inspection in this process, through
    /// [`Event::Head`](crate::Event::Head), does not count.
    pub fn is_head_seen(&self) -> bool {
        self.is_head_seen
    }

    /// Records the time at which the request was queued for the application, according to the
    /// caller's clock.
    pub fn set_queued_at(&mut self, time: u64) {
        self.queued_at = time;
    }

    /// Records the time at which the application began to process the request, according to the
    /// caller's clock.
    pub fn set_started_at(&mut self, time: u64) {
        self.started_at = time;
    }

    /// Returns two times: when the request was queued for the application, and when the application
    /// began to process it. A time that was not recorded is 0.
    pub fn queue_and_start_times(&self) -> (u64, u64) {
        (self.queued_at, self.started_at)
    }

    /// Records the two ids that a supervisor gave to the request. `ticket` is the number by which
    /// the supervisor follows the request while a worker processes it, and is 0 without a
    /// supervisor. `id` is the request's id in the supervisor's log.
    pub fn set_supervisor_ids(&mut self, ticket: u64, id: Option<&[u8]>) {
        self.ticket = ticket;
        self.supervisor_request_id = id.map_or(ArenaSlice::EMPTY, |id| self.keep(id));
    }

    /// Clears the request and the response. Their memory is kept for the next request.
    pub fn reset(&mut self) {
        self.tag = None;
        self.ticket = 0;
        self.queued_at = 0;
        self.started_at = 0;
        self.supervisor_request_id = ArenaSlice::EMPTY;
        self.route = ArenaSlice::EMPTY;
        self.app_times = None;
        self.trace = None;
        self.is_https = false;
        self.is_from_trusted_proxy = false;
        self.is_head_seen = false;
        self.client = None;
        self.backlog = None;
        self.method = ArenaSlice::EMPTY;
        self.path = ArenaSlice::EMPTY;
        self.query = ArenaSlice::EMPTY;
        self.headers.clear();
        // The table of a request with 2,000 header lines must not be kept forever.
        self.headers.shrink_to(KEPT_HEADERS);
        self.body.reset();
        self.response.reset();
        self.arena.reset();
        self.charge = None;
        self.renew_status();
        self.is_reset = true;
    }

    /// Clears the status. Others that refer to it may set its flags even after a reset.
    fn renew_status(&mut self) {
        self.status.set_waiting(false);
        let was_logged = std::mem::take(&mut self.is_logged);
        if self.status.is_client_disconnected() {
            // Whoever set the flag may still hold a reference to this status, so the next request
            // gets a new one.
            self.status = Arc::default();
        } else if was_logged {
            self.status.clear_upstream_log();
        }
    }

    /// Returns a mutable reference to the body of the request.
    pub fn body_mut(&mut self) -> &mut RequestBody {
        &mut self.body
    }

    /// Appends bytes to the request body in memory.
    pub fn push_body(&mut self, bytes: &[u8]) {
        if self.body.push_to_block(bytes) || bytes.is_empty() {
            return;
        }
        let start = self.arena.alloc_layout(Layout::for_value(bytes));
        // SAFETY: the memory is newly allocated with this length, and nothing else refers to it.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.body.push(ArenaSlice::at(start, bytes.len()));
    }

    /// Charges `bytes` of memory to the memory budget until the next [`reset`](Self::reset). Only
    /// needed for a request or response that uses much memory.
    pub fn charge(&mut self, budget: &Arc<Budget>, bytes: usize) {
        self.charge.get_or_insert_with(|| Charge::new(budget, Share::Incoming)).set(bytes);
    }

    /// Returns a mutable reference to the response.
    pub fn response_mut(&mut self) -> &mut Response {
        &mut self.response
    }

    /// Starts a response with this status code. Discards any response that was started before.
    pub fn begin_response(&mut self, status: u16) {
        self.response.reset();
        self.response.set_status(status);
    }

    /// Adds a header line to the response.
    ///
    /// # Errors
    /// Returns a [`HeaderError`] if the name is not a token, if the value contains CR, LF, NUL or
    /// another control character (RFC 9110, 5.1 and 5.5), or if the response has
    /// [`MAX_RESPONSE_HEADERS`](crate::MAX_RESPONSE_HEADERS) headers already.
    pub fn push_response_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
        response::check_header(name, value)?;
        if self.response.has_all_headers() {
            return Err(HeaderError::Count);
        }
        let (name, value) = (self.keep(name), self.keep(value));
        self.response.push_header(name, value);
        Ok(())
    }

    /// Sets the body of the response to a copy of `bytes`, which is stored in the exchange.
    pub fn set_response_body(&mut self, bytes: &[u8]) {
        let span = self.keep(bytes);
        self.response.set_copied(span);
    }

    /// Makes the response a streamed response. If a Content-Length header has already been added,
    /// the stream is limited to that length.
    pub fn set_response_stream(&mut self, stream: StreamedBody) {
        let length =
            self.response_headers().find(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
        stream.flow.set_length(
            length.and_then(|(_, value)| std::str::from_utf8(value).ok()?.trim().parse().ok()),
        );
        self.response.set_body(ResponseBody::Stream(stream));
    }

    /// Returns the counters of the bytes that are waiting to be sent to the WebSocket. Returns
    /// `None` unless the request is the opening handshake of a WebSocket.
    pub fn backlog(&self) -> Option<&Arc<SendBacklog>> {
        self.backlog.as_ref()
    }

    /// Returns the id of this exchange (a request with its response).
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// Returns the id by which logs and error reports refer to the request.
    pub fn request_id(&self) -> RequestId {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        let supervisor_id = unsafe { self.supervisor_request_id.bytes() };
        let proxy_id = if self.is_from_trusted_proxy { self.header(b"x-request-id") } else { None };
        let given = if supervisor_id.is_empty() { proxy_id } else { Some(supervisor_id) };
        RequestId::choose(self.id, given, || self.trace_context())
    }

    /// Returns true if the [request id](Self::request_id) is the trace id in the `traceparent`
    /// header, which the server has set. Returns false if that is uncertain.
    pub fn has_trace_request_id(&self) -> bool {
        let has_proxy_id = || self.is_from_trusted_proxy && self.header(b"x-request-id").is_some();
        self.trace.is_some() && !self.has_supervisor_request_id() && !has_proxy_id()
    }

    /// Returns the request's ticket: the number by which the supervisor follows the request while a
    /// worker processes it, or 0 without a supervisor.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns true if the request has an id in a supervisor's log.
    pub fn has_supervisor_request_id(&self) -> bool {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        !unsafe { self.supervisor_request_id.bytes() }.is_empty()
    }

    /// Returns the listener on which the request arrived.
    pub fn listener(&self) -> ListenerId {
        self.listener
    }

    /// Returns the index of the request in the server's table of requests in flight.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Removes and returns the token by which the application finds its own data about the request.
    /// Returns 0 if there is no token.
    pub fn take_app_token(&mut self) -> u64 {
        self.tag.take().map_or(0, AppToken::take)
    }

    /// Attaches a token by which the application finds its own data about the request. If the token
    /// is never removed, the [`ReleaseQueue`](crate::ReleaseQueue) returns it after the request.
    pub fn set_app_token(&mut self, tag: AppToken) {
        self.tag = Some(tag);
    }

    /// Returns true if the application has attached a token to the request and not removed it, as
    /// an application that has inspected the head and waits for the body has.
    pub fn has_app_token(&self) -> bool {
        self.tag.is_some()
    }

    /// Returns the client's IP address and port, or `None` for a connection over a Unix socket.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote.0
    }

    /// Returns the IP address and port to which the client connected, or `None` for a connection
    /// over a Unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local.0
    }

    /// Returns true if the client used `https`.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the identity in the client's TLS certificate, or `None` if the client sent no
    /// certificate.
    pub fn client(&self) -> Option<&ClientCertificate> {
        self.client.as_deref()
    }

    /// Returns the request's body.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// Returns the response to the request.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// Returns the header lines of the response, in the order in which the application added them.
    pub fn response_headers(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.response.headers().iter().map(|(name, value)| {
            // SAFETY: the slices belong to this exchange, which is borrowed.
            unsafe { (name.bytes(), value.bytes()) }
        })
    }

    /// Returns the body of the response if it was copied into the exchange. Returns `None` for a
    /// body that is stored elsewhere, such as a file.
    pub fn response_copy(&self) -> Option<&[u8]> {
        // SAFETY: the slice belongs to this exchange, which is borrowed.
        self.response.copied().map(|span| unsafe { span.bytes() })
    }

    /// Returns true if the client has disconnected, so that a response would have no reader.
    pub fn is_client_disconnected(&self) -> bool {
        self.status.is_client_disconnected()
    }

    /// Returns the part of the exchange's state that the server and the application can both read
    /// and change at any time.
    pub fn shared_status(&self) -> Arc<ExchangeStatus> {
        Arc::clone(&self.status)
    }

    /// Records whether the request [is waiting](ExchangeStatus::is_waiting) for a worker or for the
    /// application.
    pub fn set_waiting(&self, is_waiting: bool) {
        self.status.set_waiting(is_waiting);
    }

    /// Records whether this request will get a line in the access log or be counted by its route.
    pub fn set_logged(&mut self, is_logged: bool) {
        self.is_logged = is_logged;
    }

    /// Calls `note` to update the data about this request's workers that the access log will show.
    /// Does nothing if the request is not logged.
    pub fn update_upstream_log(&self, note: impl FnOnce(&mut UpstreamLog)) {
        if self.is_logged {
            self.status.update(note);
        }
    }

    /// Returns the data about this request's workers that the access log will show, such as the
    /// attempts and waiting times. Returns `None` if nothing was recorded.
    pub fn upstream_log(&self) -> Option<UpstreamLog> {
        if self.is_logged { self.status.upstream_log() } else { None }
    }

    /// Returns the number of bytes of memory that the exchange occupies: its arena, its header
    /// tables and the buffer of a body.
    pub fn capacity(&self) -> usize {
        let lines = self.headers.capacity() * size_of::<StoredHeader>() + self.response.capacity();
        self.arena.capacity() + lines + self.body.capacity()
    }

    fn keep(&mut self, bytes: &[u8]) -> ArenaSlice {
        if bytes.is_empty() {
            ArenaSlice::EMPTY
        } else {
            ArenaSlice::of(self.arena.alloc_slice_copy(bytes))
        }
    }
}

/// The address of the client or the server in a connection; `None` for a Unix socket.
#[derive(Debug, Clone, Copy, Default)]
struct Endpoint(Option<SocketAddr>);

/// The initial capacity of the table of request headers, in header lines. A browser sends about
/// fifteen.
const INITIAL_HEADERS: usize = 32;
/// The maximum capacity, in headers, that the table of request headers keeps from one request to
/// the next. Each header takes 56 bytes in the table.
const KEPT_HEADERS: usize = 128;
/// The size in bytes of the first chunk of a request's arena. It holds the head of a browser's
/// request, the head of the response and a small body.
const FIRST_CHUNK: usize = 4096;

#[cfg(test)]
mod tests;
