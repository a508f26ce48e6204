//! One request and its reply, in one arena.

use std::alloc::Layout;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::Arc;

use rookery_arena::Arena;

use crate::backlog::Backlog;
use crate::body::RequestBody;
use crate::budget::{Budget, Charge, Share};
use crate::fate::Fate;
use crate::headers::{
    HeaderLine, KNOWN_HEADERS, PREFIX, StoredHeader, UNKNOWN, known_header, write_cgi,
};
use crate::payload::Tag;
use crate::reply::{Reply, ReplyBody};
use crate::request_id::RequestId;
use crate::span::Span;
use crate::stream::Stream;
use crate::upstream::Upstream;

/// Names an exchange for the life of the process. A WebSocket keeps the id of its opening handshake.
pub type ExchangeId = u64;

/// A client's certificate, which has been verified: whom it names, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The subject as RFC 4514 writes it: `CN=Ada,O=Analytical Engines`.
    pub subject: String,
    /// The SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: String,
}

/// Names the listener an exchange came in on.
pub type ListenerId = u32;

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
    tag: Option<Tag>,
    /// What a supervisor calls it; 0 without one.
    ticket: u64,
    /// When it was handed over, and when the application began with it; 0 where nobody measures that.
    handed_at: u64,
    begun_at: u64,
    /// What a supervisor's log calls it.
    given_id: Span,
    version: Version,
    is_upgrade: bool,
    /// Of a handshake.
    backlog: Option<Arc<Backlog>>,
    method: Span,
    path: Span,
    query: Span,
    remote: Endpoint,
    local: Endpoint,
    is_https: bool,
    is_believed: bool,
    is_head_seen: bool,
    client: Option<Arc<ClientCertificate>>,
    headers: Vec<StoredHeader>,
    body: RequestBody,
    reply: Reply,
    fate: Arc<Fate>,
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
            tag: None,
            ticket: 0,
            handed_at: 0,
            begun_at: 0,
            given_id: Span::EMPTY,
            version: Version::Http11,
            is_upgrade: false,
            backlog: None,
            method: Span::EMPTY,
            path: Span::EMPTY,
            query: Span::EMPTY,
            remote: Endpoint::default(),
            local: Endpoint::default(),
            is_https: false,
            is_believed: false,
            is_head_seen: false,
            client: None,
            headers: Vec::with_capacity(INITIAL_HEADERS),
            body: RequestBody::default(),
            reply: Reply::default(),
            fate: Arc::default(),
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
        self.path = Span::of(path);
        self.query = Span::of(query);
        self.version = version;
    }

    /// Adds a header line; `name` is in lower case. Lines of one name are joined by [`end_head`](Self::end_head).
    pub fn push_header(&mut self, name: &[u8], value: &[u8]) {
        let value = self.keep(value);
        let header = if let Some(known) = known_header(name) {
            let table = &KNOWN_HEADERS[usize::from(known)];
            StoredHeader {
                name: Span::of(table.name.as_bytes()),
                cgi: Span::of(table.cgi.as_bytes()),
                value,
                known,
            }
        } else {
            let cgi = self.arena.alloc_slice_fill(PREFIX.len() + name.len(), 0u8);
            write_cgi(name, cgi);
            let cgi = Span::of(cgi);
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
            self.sort_and_join();
        }
    }

    /// Notes that the client came by `https` (or says through a proxy that is believed that it did), and who it is.
    pub fn set_transport(&mut self, is_https: bool, client: Option<Arc<ClientCertificate>>) {
        self.is_https = is_https;
        self.client = client;
    }

    /// Notes that the peer is a proxy which is believed.
    pub fn set_believed(&mut self, is_believed: bool) {
        self.is_believed = is_believed;
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
    pub fn set_handed_at(&mut self, time: u64) {
        self.handed_at = time;
    }

    /// Notes that the application begins with it, by the same clock.
    pub fn set_begun_at(&mut self, time: u64) {
        self.begun_at = time;
    }

    /// When it was handed to the application, and when that began with it; 0 where it was not noted.
    pub fn times(&self) -> (u64, u64) {
        (self.handed_at, self.begun_at)
    }

    /// Notes what a supervisor calls it: by its ticket, 0 for none, and in its log.
    pub fn set_supervised(&mut self, ticket: u64, id: Option<&[u8]>) {
        self.ticket = ticket;
        self.given_id = id.map_or(Span::EMPTY, |id| self.keep(id));
    }

    /// Forgets request and reply and keeps the memory for the next one.
    pub fn reset(&mut self) {
        self.tag = None;
        self.ticket = 0;
        (self.handed_at, self.begun_at) = (0, 0);
        self.given_id = Span::EMPTY;
        self.is_https = false;
        self.is_believed = false;
        self.is_head_seen = false;
        self.client = None;
        self.backlog = None;
        self.method = Span::EMPTY;
        self.path = Span::EMPTY;
        self.query = Span::EMPTY;
        self.headers.clear();
        // A request of 2,000 header lines must not hold its table for ever.
        self.headers.shrink_to(KEPT_HEADERS);
        self.body.reset();
        self.reply.reset();
        self.arena.reset();
        self.charge = None;
        self.fate.set_waiting(false);
        let was_logged = std::mem::take(&mut self.is_logged);
        if self.fate.is_departed() {
            // Whoever said so may still hold it: the next request gets one of its own.
            self.fate = Arc::default();
        } else if was_logged {
            self.fate.forget();
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
        self.body.push(Span::at(start, bytes.len()));
    }

    /// Charges `bytes` that are held for the request to `budget` until the next [`reset`](Self::reset): for the rare
    /// exchange that holds much.
    pub fn charge(&mut self, budget: &Arc<Budget>, bytes: usize) {
        self.charge.get_or_insert_with(|| Charge::new(budget, Share::Requests)).set(bytes);
    }

    /// The reply, to be read by the server.
    pub fn reply_mut(&mut self) -> &mut Reply {
        &mut self.reply
    }

    /// Starts a reply, forgetting one already begun.
    pub fn begin_reply(&mut self, status: u16) {
        self.reply.reset();
        self.reply.set_status(status);
    }

    /// Adds a header line to the reply.
    ///
    /// # Errors
    /// A name that is no token or a value with CR, LF or NUL (RFC 9110, 5.1 and 5.5) is refused.
    pub fn push_reply_header(
        &mut self,
        name: &[u8],
        value: &[u8],
    ) -> Result<(), crate::HeaderError> {
        crate::reply::check_header(name, value)?;
        let (name, value) = (self.keep(name), self.keep(value));
        self.reply.push_header(name, value);
        Ok(())
    }

    /// Copies `bytes` as the reply's body.
    pub fn set_reply_body(&mut self, bytes: &[u8]) {
        let span = self.keep(bytes);
        self.reply.set_copied(span);
    }

    /// Sets a body that comes in pieces. A Content-Length among the reply's headers, which are there already, is its length.
    pub fn set_reply_stream(&mut self, stream: Stream) {
        let length =
            self.reply_headers().find(|(name, _)| name.eq_ignore_ascii_case(b"content-length"));
        stream.flow.set_length(
            length.and_then(|(_, value)| std::str::from_utf8(value).ok()?.trim().parse().ok()),
        );
        self.reply.set_body(ReplyBody::Stream(stream));
    }

    /// Of the WebSocket that a handshake opens: what waits to be sent to it. Nothing for other requests.
    pub fn backlog(&self) -> Option<&Arc<Backlog>> {
        self.backlog.as_ref()
    }

    /// The id.
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// What it is called in logs and errors.
    pub fn request_id(&self) -> RequestId {
        // SAFETY: a span of this exchange, borrowed with it.
        let told = unsafe { self.given_id.bytes() };
        let given = if self.is_believed { self.header(b"x-request-id") } else { None };
        let given = if told.is_empty() { given } else { Some(told) };
        RequestId::of(self.id, given, self.header(b"traceparent"))
    }

    /// What a supervisor calls it; 0 without one.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Whether a supervisor's log has a name for it.
    pub fn is_named(&self) -> bool {
        // SAFETY: a span of this exchange, borrowed with it.
        !unsafe { self.given_id.bytes() }.is_empty()
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
    pub fn take_tag(&mut self) -> u64 {
        self.tag.take().map_or(0, Tag::take)
    }

    /// Attaches what the application keeps for this exchange: it goes back to it when the exchange ends before.
    pub fn set_tag(&mut self, tag: Tag) {
        self.tag = Some(tag);
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
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The header lines of the reply, in the application's order.
    pub fn reply_headers(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.reply.headers().iter().map(|(name, value)| {
            // SAFETY: spans of this exchange, borrowed with it.
            unsafe { (name.bytes(), value.bytes()) }
        })
    }

    /// The reply's body when it was copied into the exchange.
    pub fn reply_copied(&self) -> Option<&[u8]> {
        // SAFETY: a span of this exchange, borrowed with it.
        self.reply.copied().map(|span| unsafe { span.bytes() })
    }

    /// Whether the client has gone: nobody will read a reply.
    pub fn is_departed(&self) -> bool {
        self.fate.is_departed()
    }

    /// What the side which does not own the exchange may look at, and where it says that the client has gone.
    pub fn fate(&self) -> Arc<Fate> {
        Arc::clone(&self.fate)
    }

    /// Notes whether it [waits](Fate::is_waiting) for somebody who could begin with it.
    pub fn set_waiting(&self, waits: bool) {
        self.fate.set_waiting(waits);
    }

    /// Notes that a line of the access log is made of it.
    pub fn set_logged(&mut self, is_logged: bool) {
        self.is_logged = is_logged;
    }

    /// Notes what becomes of it at workers, for the line of the access log; nothing where there is none.
    pub fn note_upstream(&self, note: impl FnOnce(&mut Upstream)) {
        if self.is_logged {
            self.fate.note(note);
        }
    }

    /// What has been [noted](Self::note_upstream).
    pub fn upstream(&self) -> Option<Upstream> {
        if self.is_logged { self.fate.upstream() } else { None }
    }

    /// Bytes of memory held: the arena, the tables and the block of a body. After [`reset`](Self::reset), for reuse.
    pub fn capacity(&self) -> usize {
        let lines = self.headers.capacity() * size_of::<StoredHeader>() + self.reply.capacity();
        self.arena.capacity() + lines + self.body.capacity()
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        if bytes.is_empty() { Span::EMPTY } else { Span::of(self.arena.alloc_slice_copy(bytes)) }
    }

    /// The rare head: not already sorted with distinct names.
    fn sort_and_join(&mut self) {
        let headers = &mut self.headers;
        // SAFETY: spans of this exchange (or static), nothing is reset meanwhile.
        let name = |header: &StoredHeader| unsafe { header.name.bytes::<'static>() };
        // Insertion sort: stable, without memory, and linear on the nearly sorted; past a few dozen lines the
        // standard stable sort, whose buffer is then the smaller cost.
        if headers.len() <= INSERTION_SORT_MAX {
            for end in 1..headers.len() {
                let mut at = end;
                while at > 0 && name(&headers[at]) < name(&headers[at - 1]) {
                    headers.swap(at, at - 1);
                    at -= 1;
                }
            }
        } else {
            headers.sort_by(|a, b| name(a).cmp(name(b)));
        }
        let mut kept = 0;
        let mut next = 0;
        while next < headers.len() {
            let first = headers[next];
            let run =
                headers[next..].iter().take_while(|header| name(header) == name(&first)).count();
            let joined = match run {
                1 => first.value,
                _ => join(&self.arena, &headers[next..next + run], name(&first) == b"cookie"),
            };
            headers[kept] = StoredHeader { value: joined, ..first };
            kept += 1;
            next += run;
        }
        headers.truncate(kept);
    }
}

/// Joins the values of lines of one name, leaving empty ones out.
fn join(arena: &Arena, lines: &[StoredHeader], is_cookie: bool) -> Span {
    let separator: &[u8] = if is_cookie { b"; " } else { b"," };
    let filled = || lines.iter().filter(|line| line.value.len() > 0);
    let count = filled().count();
    let bytes: usize = filled().map(|line| line.value.len()).sum();
    if count == 0 {
        return Span::EMPTY;
    }
    let out = arena.alloc_slice_fill(bytes + separator.len() * (count - 1), 0u8);
    let mut at = 0;
    for line in filled() {
        if at > 0 {
            out[at..at + separator.len()].copy_from_slice(separator);
            at += separator.len();
        }
        // SAFETY: a span of the exchange whose arena this is.
        let value = unsafe { line.value.bytes() };
        out[at..at + value.len()].copy_from_slice(value);
        at += value.len();
    }
    Span::of(out)
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
/// Insertion sort moves at most n²/4 lines: 256 for 32.
const INSERTION_SORT_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.set_request_line(b"GET", b"/", Version::Http11);
        for (name, value) in lines {
            exchange.push_header(name.as_bytes(), value.as_bytes());
        }
        exchange.end_head(None, None, false);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        exchange.headers().map(|header| (text(header.cgi), text(header.value))).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(cgi, value)| ((*cgi).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_are_sorted_and_joined_as_the_application_wants_them() {
        type Lines = &'static [(&'static str, &'static str)];
        let table: &[(Lines, Lines)] = &[
            (&[], &[]),
            (&[("x-foo", "1"), ("x-foo", "2"), ("x-foo", "")], &[("HTTP_X_FOO", "1,2")]),
            (&[("x-foo", ""), ("x-foo", "2")], &[("HTTP_X_FOO", "2")]),
            (&[("empty", "")], &[("HTTP_EMPTY", "")]),
            (&[("empty", ""), ("empty", "")], &[("HTTP_EMPTY", "")]),
            (
                &[("cookie", "a=1"), ("accept", "*"), ("cookie", "b=2")],
                &[("HTTP_ACCEPT", "*"), ("HTTP_COOKIE", "a=1; b=2")],
            ),
            (
                &[("x-b", "1"), ("x-a", "2"), ("x-b", "3"), ("host", "h")],
                &[("HTTP_HOST", "h"), ("HTTP_X_A", "2"), ("HTTP_X_B", "1,3")],
            ),
        ];
        for (lines, expected) in table {
            assert_eq!(head(lines), pairs(expected), "{lines:?}");
        }
    }

    #[test]
    fn two_thousand_lines_keep_the_order_of_one_name() {
        let lines: Vec<(String, String)> =
            (0..2000).map(|n| (format!("x-{}", n % 7), n.to_string())).collect();
        let borrowed: Vec<(&str, &str)> =
            lines.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let got = head(&borrowed);
        assert_eq!(got.len(), 7);
        for (remainder, (_, value)) in got.iter().enumerate() {
            let want: Vec<String> =
                (0..2000).filter(|n| n % 7 == remainder).map(|n: usize| n.to_string()).collect();
            assert_eq!(*value, want.join(","));
        }
    }

    #[test]
    fn the_target_is_split_at_its_first_question_mark() {
        let table = [
            ("/x", "/x", ""),
            ("/x?", "/x", "?"),
            ("/x?a?b", "/x", "?a?b"),
            ("*", "*", ""),
            ("?", "", "?"),
        ];
        for (target, path, query) in table {
            let mut exchange = Exchange::new();
            exchange.begin(1, 1, 0);
            exchange.set_request_line(b"GET", target.as_bytes(), Version::Http11);
            assert_eq!((exchange.path(), exchange.query()), (path.as_bytes(), query.as_bytes()));
        }
    }

    #[test]
    fn a_body_in_chunks_of_a_byte_costs_little_more_than_its_bytes() {
        const COUNT: usize = if cfg!(miri) { 20_000 } else { 200_000 };
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        for n in 0..COUNT {
            exchange.push_body(&[n as u8]);
        }
        // A span is 16 bytes, and the table of them doubles.
        assert!(exchange.capacity() < 2 * COUNT, "{}", exchange.capacity());
        let whole: Vec<u8> = exchange.body().segments().flatten().copied().collect();
        assert!(
            whole.len() == COUNT && whole.iter().enumerate().all(|(at, byte)| *byte == at as u8)
        );
    }

    #[test]
    fn a_charge_lasts_until_the_reset() {
        let budget = Budget::new([0; Share::COUNT]);
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.push_body(&vec![0; 100_000]);
        exchange.charge(&budget, exchange.capacity());
        assert_eq!(budget.used(Share::Requests), exchange.capacity());
        assert!(exchange.capacity() > 100_000);
        exchange.reset();
        assert_eq!(budget.used(Share::Requests), 0);
    }

    #[test]
    fn a_departed_exchange_is_not_departed_when_used_again() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        let fate = exchange.fate();
        fate.depart();
        assert!(exchange.is_departed());
        exchange.begin(2, 1, 0);
        assert!(!exchange.is_departed());
        fate.depart();
        assert!(!exchange.is_departed(), "the old flag must not reach the new request");
    }

    #[test]
    fn what_became_of_a_request_is_noted_where_it_is_logged_and_not_of_the_next() {
        let mut exchange = Exchange::new();
        exchange.begin(1, 1, 0);
        exchange.note_upstream(|upstream| upstream.given = 1);
        assert_eq!((exchange.upstream(), exchange.fate().upstream()), (None, None));
        exchange.set_logged(true);
        assert_eq!(exchange.upstream(), None);
        exchange.note_upstream(|upstream| upstream.given = 3);
        assert_eq!(exchange.upstream().map(|upstream| upstream.given), Some(3));
        exchange.begin(2, 1, 0);
        exchange.set_logged(true);
        assert_eq!((exchange.upstream(), exchange.fate().upstream()), (None, None));
    }
}
