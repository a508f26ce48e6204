//! One request and its reply, in one arena.

use std::alloc::Layout;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use rookery_arena::Arena;

mod arena_slice;
pub(crate) mod body_buffer;
pub(crate) mod header_names;
mod header_sort;
pub(crate) mod request_body;
pub(crate) mod response;
pub(crate) mod status;
pub(crate) mod upstream_log;

use self::arena_slice::ArenaSlice;
use self::header_names::{
    HeaderLine, KNOWN_HEADERS, PREFIX, StoredHeader, UNKNOWN, known_header, write_cgi,
};
use self::header_sort::sort_and_join;
use self::request_body::RequestBody;
use self::response::{HeaderError, Response, ResponseBody};
use self::status::ExchangeStatus;
use self::upstream_log::UpstreamLog;
use crate::budget::{Budget, Charge, Share};
use crate::ids::{ExchangeId, ListenerId};
use crate::payload::AppToken;
use crate::request_id::RequestId;
use crate::send_backlog::SendBacklog;
use crate::streamed_body::StreamedBody;

/// A client's certificate, which has been verified: whom it names, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject as RFC 4514 writes it: `CN=Ada,O=Analytical Engines`.
    pub subject: String,
    /// The SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: String,
}

/// The request's HTTP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// One request and its reply. It has one owner at a time: the server fills it, the application answers into it,
/// the server sends it and puts it back into its pool. Meanwhile the other side may only set
/// [`departed`](Exchange::is_departed).
///
/// # Allocation
/// The head, the body in memory and the reply lie in the exchange's arena; at steady state filling, answering and
/// [`reset`](Exchange::reset) call neither malloc nor free.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of a request that have nothing to do with each other"
)]
pub struct Exchange {
    id: ExchangeId,
    listener: ListenerId,
    slot: u32,
    app_token: Option<AppToken>,
    /// What a supervisor calls it; 0 without one.
    ticket: u64,
    /// When it was handed over, and when the application began with it; 0 where nobody measures that.
    queued_at: u64,
    started_at: u64,
    /// What a supervisor's log calls it.
    supervisor_request_id: ArenaSlice,
    version: Version,
    is_upgrade: bool,
    /// Of a handshake.
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
    /// What the server has charged for it, if it is large.
    charge: Option<Charge>,
    // Last, so that nothing that points into it outlives it.
    arena: Arena,
}

impl Exchange {
    /// Makes an empty exchange. The server makes one per request in flight and reuses it.
    pub fn new() -> Box<Exchange> {
        Box::new(Exchange {
            id: 0,
            listener: 0,
            slot: 0,
            app_token: None,
            ticket: 0,
            queued_at: 0,
            started_at: 0,
            supervisor_request_id: ArenaSlice::EMPTY,
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
            charge: None,
            arena: Arena::with_chunk_size(FIRST_CHUNK),
        })
    }

    /// Starts a request: `id` is new, `slot` is where the server waits for the reply.
    pub fn begin(&mut self, id: ExchangeId, listener: ListenerId, slot: u32) {
        self.reset();
        self.id = id;
        self.listener = listener;
        self.slot = slot;
    }

    /// Writes the request line. The query starts at the first `?` of `target` and includes it.
    pub fn set_request_line(&mut self, method: &[u8], target: &[u8], version: Version) {
        self.method = self.keep(method);
        let at = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
        let target = self.keep(target);
        // SAFETY: `target` was just made from this arena.
        let (path, query) = unsafe { target.bytes() }.split_at(at);
        self.path = ArenaSlice::of(path);
        self.query = ArenaSlice::of(query);
        self.version = version;
    }

    /// Adds a header line; `name` is in lower case. Lines of one name are joined by [`end_head`](Self::end_head).
    pub fn push_header(&mut self, name: &[u8], value: &[u8]) {
        let value = self.keep(value);
        let header = if let Some(known) = known_header(name) {
            let table = &KNOWN_HEADERS[usize::from(known)];
            StoredHeader {
                name: ArenaSlice::of(table.name.as_bytes()),
                cgi: ArenaSlice::of(table.cgi.as_bytes()),
                value,
                known,
            }
        } else {
            let cgi = self.arena.alloc_slice_fill(PREFIX.len() + name.len(), 0u8);
            write_cgi(name, cgi);
            let cgi = ArenaSlice::of(cgi);
            StoredHeader { name: self.keep(name), cgi, value, known: UNKNOWN }
        };
        self.headers.push(header);
    }

    /// Ends the head: sorts the headers by name and joins lines of one name. `remote` and `local` are the two ends
    /// of the connection, `None` for a Unix socket.
    pub fn end_head(
        &mut self,
        remote: Option<SocketAddr>,
        local: Option<SocketAddr>,
        is_upgrade: bool,
    ) {
        self.remote = Endpoint(remote);
        self.local = Endpoint(local);
        self.is_upgrade = is_upgrade;
        self.backlog = is_upgrade.then(Arc::default);
        // SAFETY: spans of this exchange (or static), nothing is reset meanwhile.
        let name = |header: &StoredHeader| unsafe { header.name.bytes::<'static>() };
        if !self.headers.is_sorted_by(|a, b| name(a) < name(b)) {
            sort_and_join(&mut self.headers, &self.arena);
        }
    }

    /// Notes that the client came by `https` (or says through a proxy that is believed that it did), and who it is.
    pub fn set_transport(&mut self, is_https: bool, client: Option<Arc<ClientCertificate>>) {
        self.is_https = is_https;
        self.client = client;
    }

    /// Notes that the peer is a proxy which is believed.
    pub fn set_from_trusted_proxy(&mut self, is_from_trusted_proxy: bool) {
        self.is_from_trusted_proxy = is_from_trusted_proxy;
    }

    /// Notes that the app has seen its head, in this process or another, and lets its body come.
    pub fn set_head_seen(&mut self) {
        self.is_head_seen = true;
    }

    /// Whether the app [has seen](Self::set_head_seen) its head, before the supervisor of this process or another sent it with its body. Of
    /// one that [`Event::Head`](crate::Event::Head) has shown here nothing is noted.
    pub fn is_head_seen(&self) -> bool {
        self.is_head_seen
    }

    /// Notes that it is handed to the application, by a clock of the caller's.
    pub fn set_queued_at(&mut self, time: u64) {
        self.queued_at = time;
    }

    /// Notes that the application begins with it, by the same clock.
    pub fn set_started_at(&mut self, time: u64) {
        self.started_at = time;
    }

    /// When it was handed to the application, and when that began with it; 0 where it was not noted.
    pub fn queue_and_start_times(&self) -> (u64, u64) {
        (self.queued_at, self.started_at)
    }

    /// Notes what a supervisor calls it: by its ticket, 0 for none, and in its log.
    pub fn set_supervisor_ids(&mut self, ticket: u64, id: Option<&[u8]>) {
        self.ticket = ticket;
        self.supervisor_request_id = id.map_or(ArenaSlice::EMPTY, |id| self.keep(id));
    }

    /// Forgets request and reply and keeps the memory for the next one.
    pub fn reset(&mut self) {
        self.app_token = None;
        self.ticket = 0;
        (self.queued_at, self.started_at) = (0, 0);
        self.supervisor_request_id = ArenaSlice::EMPTY;
        self.is_https = false;
        self.is_from_trusted_proxy = false;
        self.is_head_seen = false;
        self.client = None;
        self.backlog = None;
        self.method = ArenaSlice::EMPTY;
        self.path = ArenaSlice::EMPTY;
        self.query = ArenaSlice::EMPTY;
        self.headers.clear();
        // A request of 2,000 header lines must not hold its table for ever.
        self.headers.shrink_to(KEPT_HEADERS);
        self.body.reset();
        self.response.reset();
        self.arena.reset();
        self.charge = None;
        self.status.set_waiting(false);
        let was_logged = std::mem::take(&mut self.is_logged);
        if self.status.is_client_disconnected() {
            // Whoever said so may still hold it: the next request gets one of its own.
            self.status = Arc::default();
        } else if was_logged {
            self.status.clear_upstream_log();
        }
    }

    /// The request's body, to be filled by the server.
    pub fn body_mut(&mut self) -> &mut RequestBody {
        &mut self.body
    }

    /// Adds bytes to the body in memory.
    pub fn push_body(&mut self, bytes: &[u8]) {
        if self.body.push_to_block(bytes) {
            return;
        }
        if bytes.is_empty() {
            return;
        }
        let start = self.arena.alloc_layout(Layout::for_value(bytes));
        // SAFETY: fresh memory for as many bytes, which nobody else refers to.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.body.push(ArenaSlice::at(start, bytes.len()));
    }

    /// Charges `bytes` that are held for the request to `budget` until the next [`reset`](Self::reset): for the rare
    /// exchange that holds much.
    pub fn charge(&mut self, budget: &Arc<Budget>, bytes: usize) {
        self.charge.get_or_insert_with(|| Charge::new(budget, Share::Requests)).set(bytes);
    }

    /// The reply, to be read by the server.
    pub fn response_mut(&mut self) -> &mut Response {
        &mut self.response
    }

    /// Starts a reply, forgetting one already begun.
    pub fn begin_response(&mut self, status: u16) {
        self.response.reset();
        self.response.set_status(status);
    }

    /// Adds a header line to the reply.
    ///
    /// # Errors
    /// A name that is no token or a value with CR, LF or NUL (RFC 9110, 5.1 and 5.5) is refused.
    pub fn push_response_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeaderError> {
        response::check_header(name, value)?;
        let (name, value) = (self.keep(name), self.keep(value));
        self.response.push_header(name, value);
        Ok(())
    }

    /// Copies `bytes` as the reply's body.
    pub fn set_response_body(&mut self, bytes: &[u8]) {
        let span = self.keep(bytes);
        self.response.set_copied(span);
    }

    /// Sets a body that comes in pieces. A Content-Length among the reply's headers, which are there already, is its length.
    pub fn set_response_stream(&mut self, stream: StreamedBody) {
        let length =
            self.response_headers().find(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
        stream.flow.set_length(
            length.and_then(|(_, value)| std::str::from_utf8(value).ok()?.trim().parse().ok()),
        );
        self.response.set_body(ResponseBody::Stream(stream));
    }

    /// Of the WebSocket that a handshake opens: what waits to be sent to it. Nothing for other requests.
    pub fn backlog(&self) -> Option<&Arc<SendBacklog>> {
        self.backlog.as_ref()
    }

    /// The id.
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// What it is called in logs and errors.
    pub fn request_id(&self) -> RequestId {
        // SAFETY: a span of this exchange, borrowed with it.
        let told = unsafe { self.supervisor_request_id.bytes() };
        let given = if self.is_from_trusted_proxy { self.header(b"x-request-id") } else { None };
        let given = if told.is_empty() { given } else { Some(told) };
        RequestId::choose(self.id, given, self.header(b"traceparent"))
    }

    /// What a supervisor calls it; 0 without one.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether a supervisor's log has a name for it.
    pub fn has_supervisor_request_id(&self) -> bool {
        // SAFETY: a span of this exchange, borrowed with it.
        !unsafe { self.supervisor_request_id.bytes() }.is_empty()
    }

    /// The listener it came in on.
    pub fn listener(&self) -> ListenerId {
        self.listener
    }

    /// Where the server waits for the reply.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Takes what the application has attached; 0 when it has attached nothing.
    pub fn take_app_token(&mut self) -> u64 {
        self.app_token.take().map_or(0, AppToken::take)
    }

    /// Attaches what the application keeps for this exchange: it goes back to it when the exchange ends before.
    pub fn set_app_token(&mut self, token: AppToken) {
        self.app_token = Some(token);
    }

    /// The version the client speaks.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether this is the opening handshake of a WebSocket.
    pub fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// The method, as sent.
    pub fn method(&self) -> &[u8] {
        // SAFETY: a span of this exchange, borrowed with it.
        unsafe { self.method.bytes() }
    }

    /// The request target up to the first `?`, not decoded.
    pub fn path(&self) -> &[u8] {
        // SAFETY: a span of this exchange, borrowed with it.
        unsafe { self.path.bytes() }
    }

    /// From the first `?` of the request target on, with it; empty without one.
    pub fn query(&self) -> &[u8] {
        // SAFETY: a span of this exchange, borrowed with it.
        unsafe { self.query.bytes() }
    }

    /// The client's address; `None` on a Unix socket.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote.0
    }

    /// The address the client reached; `None` on a Unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        self.local.0
    }

    /// Whether the client came by `https`.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Whom its certificate says the client is: `None` without one, and where none was asked for.
    pub fn client(&self) -> Option<&ClientCertificate> {
        self.client.as_deref()
    }

    /// The headers, sorted by name, each name once.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = HeaderLine<'_>> {
        self.headers.iter().map(|header| {
            // SAFETY: spans of this exchange (or static), borrowed with it.
            let (name, cgi, value) =
                unsafe { (header.name.bytes(), header.cgi.bytes(), header.value.bytes()) };
            HeaderLine {
                name,
                cgi,
                value,
                known: (header.known != UNKNOWN).then_some(header.known),
            }
        })
    }

    /// The value of a header by its lower-case name.
    pub fn header(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers().find(|header| header.name == name).map(|header| header.value)
    }

    /// The request's body.
    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The reply.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// The header lines of the reply, in the application's order.
    pub fn response_headers(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.response.headers().iter().map(|(name, value)| {
            // SAFETY: spans of this exchange, borrowed with it.
            unsafe { (name.bytes(), value.bytes()) }
        })
    }

    /// The reply's body when it was copied into the exchange.
    pub fn response_copy(&self) -> Option<&[u8]> {
        // SAFETY: a span of this exchange, borrowed with it.
        self.response.copied().map(|span| unsafe { span.bytes() })
    }

    /// Whether the client has gone: nobody will read a reply.
    pub fn is_client_disconnected(&self) -> bool {
        self.status.is_client_disconnected()
    }

    /// What the side which does not own the exchange may look at, and where it says that the client has gone.
    pub fn shared_status(&self) -> Arc<ExchangeStatus> {
        Arc::clone(&self.status)
    }

    /// Notes whether it [waits](ExchangeStatus::is_waiting) for somebody who could begin with it.
    pub fn set_waiting(&self, is_waiting: bool) {
        self.status.set_waiting(is_waiting);
    }

    /// Notes that a line of the access log is made of it.
    pub fn set_logged(&mut self, is_logged: bool) {
        self.is_logged = is_logged;
    }

    /// Notes what becomes of it at workers, for the line of the access log; nothing where there is none.
    pub fn update_upstream_log(&self, note: impl FnOnce(&mut UpstreamLog)) {
        if self.is_logged {
            self.status.update(note);
        }
    }

    /// What has been [noted](Self::update_upstream_log).
    pub fn upstream_log(&self) -> Option<UpstreamLog> {
        if self.is_logged { self.status.upstream_log() } else { None }
    }

    /// Bytes of memory held: the arena, the tables and the block of a body. After [`reset`](Self::reset), for reuse.
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

/// One end of a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Endpoint(Option<SocketAddr>);

/// A browser sends about fifteen header lines.
const INITIAL_HEADERS: usize = 32;
/// The table kept between requests: 128 lines of 56 bytes.
const KEPT_HEADERS: usize = 128;
/// The head of a browser's request, its reply's head and a small body.
const FIRST_CHUNK: usize = 4096;

#[cfg(test)]
mod tests;
