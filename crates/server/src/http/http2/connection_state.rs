//! The state that all streams of an HTTP/2 connection share, and the counters that detect abuse.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rookery_exchange::{Charge, ExchangeStatus, Peer, Share};
use tokio::io::ReadBuf;

use super::frames::Frames;
use super::wasted_requests::{WastedByClient, is_wasteful};
use crate::connections::eviction::cost::EvictionCost;
use crate::connections::table::ConnectionTable;

/// The flow-control window of an HTTP/2 stream: the number of bytes that a client may send before
/// the server reads them.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// The flow-control window of an HTTP/2 connection in bytes. It is larger than the window of a
/// stream, so that an unread stream does not block the others.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The largest flow-control window that HTTP/2 has (RFC 9113, 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// The maximum number of bytes that the server reads from an HTTP/2 connection before it lets the
/// streams process them. The limit is small because h2 closes the connection if the streams leave
/// too many tiny frames unread.
const MAX_READ_PER_POLL: usize = 8 << 10;

/// The bytes that h2 holds at most while the socket accepts no more bytes, in addition to its
/// buffers of other connections: the acknowledgements of pings and settings, and a TLS record.
const BLOCKED_BYTES: usize = 32 << 10;

/// The number of concurrent streams, and of frames in a poll, for which h2's tables are included in
/// the charge of each connection.
const UNCHARGED_SLOTS: usize = 32;

/// The bytes of h2's tables for each stream. The tables grow with the number of concurrent streams
/// and stay so large.
const STREAM_SLOT_BYTES: usize = 1280;

/// The bytes of h2's table for each frame that waits until its stream takes it. The table grows
/// with the number of frames in a poll and stays so large.
const FRAME_SLOT_BYTES: usize = 256;

/// The size in bytes of the buffer for outgoing WebSocket messages on an HTTP/2 connection.
const WEBSOCKET_BUFFER: usize = 4 << 10;

/// An object, such as an HTTP/2 stream, that waits until the data that it has passed to h2 has been
/// written.
pub(crate) trait FlushListener {
    /// Called when all data that the listener has passed to h2 has been written.
    fn on_flushed(&self);

    /// Called when the connection closed before all data that the listener has passed to h2 was
    /// written.
    fn on_lost(&self);
}

/// Returns the maximum number of concurrent requests of a connection. On the connection of a
/// trusted proxy, one client may use a half of them.
pub(super) fn max_requests(connections: &ConnectionTable, is_proxy: bool) -> usize {
    let of_client = connections.limits().http2_max_concurrent_streams;
    if is_proxy { of_client.saturating_mul(2) } else { of_client }
}

/// Returns the flow-control window of a connection in bytes. The window for a trusted proxy is as
/// large as those of all streams together, because otherwise the unread bodies of one client could
/// stop those of all others. The clients are then limited by what is charged for each stream.
pub(super) fn connection_window(connections: &ConnectionTable, is_proxy: bool) -> u32 {
    if !is_proxy {
        return CONNECTION_WINDOW;
    }
    let streams = u32::try_from(max_requests(connections, true)).unwrap_or(u32::MAX);
    STREAM_WINDOW.saturating_mul(streams).clamp(CONNECTION_WINDOW, MAX_WINDOW)
}

/// The state that all streams of an HTTP/2 connection share.
pub(crate) struct Http2State {
    connections: Rc<ConnectionTable>,
    /// The peer that is the connection.
    peer: Peer,
    /// The connection-table keys of the HTTP/2 connection's open streams, and their ids in HTTP/2.
    streams: RefCell<Vec<(usize, u32)>>,
    /// The maximum number of streams that h2 has had at a time.
    most_streams: Cell<usize>,
    /// The maximum number of HEADERS and DATA frames in a poll of h2.
    most_frames: Cell<usize>,
    /// The number of open streams whose complete response has been passed to h2.
    // The client may already consider these streams closed.
    responses_sent: Cell<usize>,
    /// The streams whose data h2 has not completely written yet.
    unflushed: RefCell<Vec<Rc<dyn FlushListener>>>,
    /// True once the HTTP/2 connection has closed, so that nothing can be written any more.
    is_closed: Cell<bool>,
    /// True if the transport has sent all bytes that h2 has written.
    is_clean: Cell<bool>,
    /// True if the connection's socket accepts no more bytes.
    is_blocked: Cell<bool>,
    /// The number of bytes that were read from the connection in the current poll.
    read_in_poll: Cell<usize>,
    /// The server name from the TLS handshake, if requests on the connection must be for that name.
    tls_name: Option<Rc<str>>,
    frames: RefCell<Frames>,
    /// The number of bytes of response DATA that the server has sent on the connection.
    sent: Cell<u64>,
    opened: Cell<u64>,
    wasted: Cell<u64>,
    /// The number of the connection's streams that are WebSockets.
    websockets: Cell<usize>,
    /// The buffer that outgoing WebSocket messages are copied into before h2 sends them.
    websocket_buffer: RefCell<BytesMut>,
    /// The requests that the application still processes although their HTTP/2 streams have ended,
    /// with the ids of their peers.
    abandoned: RefCell<Vec<(u64, Arc<ExchangeStatus>)>>,
    /// The wasted requests of each client if the connection is that of a trusted proxy.
    proxied: Option<RefCell<WastedByClient>>,
    /// The number of request body bytes that the client may send before the server has read them.
    incoming: Cell<usize>,
    /// The charge to the memory budget for the `incoming` bytes.
    charge: Charge,
}

impl Http2State {
    pub(super) fn new(
        connections: &Rc<ConnectionTable>,
        peer: Peer,
        tls_name: Option<Rc<str>>,
        is_proxy: bool,
    ) -> Rc<Http2State> {
        let proxied = is_proxy.then(RefCell::default);
        let max_requests = max_requests(connections, is_proxy);
        Rc::new(Http2State {
            connections: Rc::clone(connections),
            peer,
            streams: RefCell::default(),
            most_streams: Cell::new(0),
            most_frames: Cell::new(0),
            responses_sent: Cell::new(0),
            unflushed: RefCell::default(),
            is_closed: Cell::new(false),
            is_clean: Cell::new(true),
            is_blocked: Cell::new(false),
            read_in_poll: Cell::new(0),
            tls_name,
            frames: RefCell::new(Frames::new(max_requests)),
            sent: Cell::new(0),
            opened: Cell::new(0),
            wasted: Cell::new(0),
            websockets: Cell::new(0),
            websocket_buffer: RefCell::default(),
            abandoned: RefCell::default(),
            proxied,
            incoming: Cell::new(0),
            charge: connections.charge(Share::Incoming, 0),
        })
    }

    // ---- streams ----

    /// Adds a newly opened HTTP/2 stream. Returns true if the connection has no other stream.
    pub(super) fn on_stream_opened(&self, key: usize, stream: u32) -> bool {
        self.opened.set(self.opened.get() + 1);
        let mut streams = self.streams.borrow_mut();
        streams.push((key, stream));
        streams.len() == 1
    }

    /// Counts an HTTP/2 stream whose complete response has been passed to h2.
    pub(super) fn on_response_sent(&self) {
        self.responses_sent.set(self.responses_sent.get() + 1);
    }

    /// Removes a closed HTTP/2 stream. Returns true if no other stream of the connection is open.
    pub(super) fn on_stream_closed(&self, key: usize, is_response_sent: bool) -> bool {
        self.responses_sent.set(self.responses_sent.get() - usize::from(is_response_sent));
        let mut streams = self.streams.borrow_mut();
        if let Some(at) = streams.iter().position(|(other, _)| *other == key) {
            streams.swap_remove(at);
        }
        streams.is_empty()
    }

    /// Counts an HTTP/2 stream that became a WebSocket. Returns true if the connection has no other
    /// WebSocket.
    pub(super) fn on_websocket_opened(&self) -> bool {
        self.websockets.replace(self.websockets.get() + 1) == 0
    }

    pub(super) fn on_websocket_closed(&self) -> bool {
        self.websockets.set(self.websockets.get() - 1);
        self.websockets.get() == 0
    }

    /// Returns true if the connection has open streams and all of them are WebSockets.
    pub(crate) fn has_only_websockets(&self) -> bool {
        // Then the stall timeout of the WebSockets applies instead of the connection's own deadline
        // for writing.
        let websockets = self.websockets.get();
        websockets > 0 && websockets == self.streams.borrow().len()
    }

    pub(crate) fn has_streams(&self) -> bool {
        !self.streams.borrow().is_empty()
    }

    /// Returns true if at least one HTTP/2 stream is waiting for the application's response.
    pub(crate) fn is_awaiting_response(&self) -> bool {
        self.streams.borrow().iter().any(|(key, _)| {
            self.connections.get(*key).is_some_and(|stream| stream.is_awaiting_response())
        })
    }

    /// Returns the number of clock ticks for which every stream of the connection has been idle or
    /// slow. Returns `None` if a stream is neither idle nor slow.
    pub(crate) fn slowness(&self, now: u32) -> Option<u32> {
        let streams = self.streams.borrow();
        let mut all = streams
            .iter()
            .map(|(key, _)| self.connections.get(*key).and_then(|stream| stream.slowness(now)));
        all.try_fold(u32::MAX, |least, ticks| Some(least.min(ticks?)))
    }

    /// Returns what the client loses if the connection is evicted: that of its most valuable
    /// stream.
    pub(crate) fn eviction_cost(&self) -> EvictionCost {
        let streams = self.streams.borrow();
        let all = streams.iter().filter_map(|(key, _)| self.connections.get(*key)?.eviction_cost());
        all.max().unwrap_or(EvictionCost::Idle)
    }

    /// Ends all streams, because the connection is evicted: a request gets an error response if
    /// none has begun, and a WebSocket a close frame.
    pub(crate) fn evict_streams(&self) {
        for (key, _) in &*self.streams.borrow() {
            if let Some(stream) = self.connections.get(*key) {
                stream.evict_for_slot();
            }
        }
    }

    /// Returns the number of requests under way on the HTTP/2 connection. Also counts requests that
    /// the application still processes although their streams have ended.
    pub(super) fn count_requests_under_way(&self) -> usize {
        let mut left = self.abandoned.borrow_mut();
        // The application holds the exchange, and with it a reference to its status.
        left.retain(|(_, status)| Arc::strong_count(status) > 1);
        left.len() + self.streams.borrow().len() - self.responses_sent.get()
    }

    /// Adds a request that the application still processes although its HTTP/2 stream has ended.
    pub(crate) fn add_abandoned(&self, peer: Peer, status: &Arc<ExchangeStatus>) {
        self.abandoned.borrow_mut().push((peer.id(), Arc::clone(status)));
    }

    /// Returns true if there is a place for another request of a peer. On the connection of a
    /// trusted proxy, a client may use as many places as are free, so that there are always some
    /// for the others. Requests for which the proxy names no client may use all places.
    pub(super) fn has_place(&self, peer: Peer) -> bool {
        let under_way = self.count_requests_under_way();
        let max = max_requests(&self.connections, self.is_proxied());
        let free = max.saturating_sub(under_way);
        if !self.is_proxied() || peer.id() == self.peer.id() {
            return free > 0;
        }
        // No client uses more places than all clients together.
        under_way < free || self.count_places(peer) < free
    }

    fn count_places(&self, peer: Peer) -> usize {
        let is_of = |(key, _): &&(usize, u32)| {
            self.connections.get(*key).is_some_and(|stream| stream.peer().id() == peer.id())
        };
        let abandoned = self.abandoned.borrow().iter().filter(|(id, _)| *id == peer.id()).count();
        abandoned + self.streams.borrow().iter().filter(is_of).count()
    }

    /// Returns true if the connection is that of a trusted proxy, whose clients are the peers.
    pub(crate) fn is_proxied(&self) -> bool {
        self.proxied.is_some()
    }

    /// Returns false if the peer is a client of a trusted proxy that has wasted too many requests.
    pub(super) fn admits_client(&self, peer: Peer) -> bool {
        let now = self.connections.clock.now();
        self.clients(peer).is_none_or(|clients| clients.borrow_mut().admits(peer, now))
    }

    /// Returns the counts of wasted requests for each client if a trusted proxy has named this peer
    /// as one.
    fn clients(&self, peer: Peer) -> Option<&RefCell<WastedByClient>> {
        // The requests of clients that a proxy does not name count for the proxy's connection.
        self.proxied.as_ref().filter(|_| peer.id() != self.peer.id())
    }

    /// Counts a request of a peer that the client has reset or that was malformed.
    pub(super) fn count_wasted(&self, peer: Peer) {
        match self.clients(peer) {
            Some(clients) => {
                clients.borrow_mut().count_wasted(peer, self.connections.clock.now());
            }
            None => self.wasted.set(self.wasted.get() + 1),
        }
    }

    /// Returns true if the client is abusive: it has wasted too many requests, or it floods the
    /// connection with frames that contain almost no payload. A trusted proxy may send any frames,
    /// because one of its clients may have caused them.
    pub(super) fn is_abusive(&self) -> bool {
        is_wasteful(self.wasted.get(), self.opened.get())
            || (!self.is_proxied() && self.frames.borrow().is_flood(self.sent.get()))
    }

    pub(super) fn bound_name(&self) -> Option<&str> {
        self.tls_name.as_deref()
    }

    // ---- writing ----

    /// Records the result of writing or flushing the HTTP/2 connection. `is_pending` is true if the
    /// socket accepts no more bytes. `is_clean` is true for a flush and false for a write, because
    /// bytes may remain unsent after a write.
    pub(super) fn on_written(&self, is_pending: bool, is_clean: bool) {
        self.is_blocked.set(is_pending);
        self.is_clean.set(is_clean && !is_pending);
    }

    /// Returns true if the connection's socket accepts no more bytes.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// Records that an HTTP/2 stream has passed a response head or `bytes` bytes of DATA to h2.
    pub(super) fn on_data_sent(&self, stream: Rc<dyn FlushListener>, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
        if self.is_closed.get() {
            return stream.on_lost();
        }
        let mut unflushed = self.unflushed.borrow_mut();
        if !unflushed.iter().any(|other| Rc::ptr_eq(other, &stream)) {
            unflushed.push(stream);
        }
    }

    /// Copies the first `len` bytes of an outgoing WebSocket message into a chunk for h2.
    pub(super) fn copy_chunk(&self, buffers: &[IoSlice<'_>], len: usize) -> Bytes {
        // All WebSockets of the connection share one buffer for these chunks, and its memory is
        // reused after they have been sent.
        let mut websocket_buffer = self.websocket_buffer.borrow_mut();
        if websocket_buffer.capacity() < len {
            websocket_buffer.reserve(len.max(WEBSOCKET_BUFFER));
        }
        let mut left = len;
        for buffer in buffers {
            let part = buffer.len().min(left);
            websocket_buffer.extend_from_slice(&buffer[..part]);
            left -= part;
        }
        self.sent.set(self.sent.get() + len as u64);
        websocket_buffer.split().freeze()
    }

    /// Notifies the waiting streams if all their data has been written. Called when h2 has nothing
    /// to write.
    pub(super) fn notify_flushed(&self) {
        if self.is_clean.get() {
            let unflushed = std::mem::take(&mut *self.unflushed.borrow_mut());
            for stream in unflushed {
                stream.on_flushed();
            }
        }
    }

    /// Tells each stream with unwritten data that the connection has closed. h2 does not tell
    /// streams that have already passed their whole response to it.
    pub(super) fn on_closed(&self) {
        self.is_closed.set(true);
        let unflushed = std::mem::take(&mut *self.unflushed.borrow_mut());
        for stream in unflushed {
            stream.on_lost();
        }
    }

    // ---- reading ----

    /// Begins to poll the HTTP/2 connection. During each poll, at most [`MAX_READ_PER_POLL`] bytes
    /// are read.
    pub(super) fn begin_poll(&self) {
        self.read_in_poll.set(0);
        self.frames.borrow_mut().begin_poll();
    }

    /// Ends a poll of the HTTP/2 connection, in which all streams that h2 has accepted were opened.
    /// h2 itself has reset those of other requests, such as malformed ones, and holds no trailers
    /// of them. Charges the trailers of a trusted proxy's streams to the clients of the streams.
    pub(super) fn end_poll(&self) {
        let streams = self.streams.borrow();
        let mut frames = self.frames.borrow_mut();
        frames.held_trailers.retain(|stream| streams.iter().any(|(_, open)| *open == stream));
        if !self.is_proxied() {
            return;
        }
        for (stream, bytes) in frames.held_trailers.of_streams() {
            let key = streams.iter().find(|(_, open)| *open == stream).map(|(key, _)| *key);
            if let Some(entry) = key.and_then(|key| self.connections.get(key)) {
                entry.charge_trailers(bytes);
            }
        }
    }

    /// Returns true if no more bytes may be read from the connection before its streams have been
    /// polled.
    pub(super) fn has_read_enough(&self) -> bool {
        self.read_in_poll.get() >= MAX_READ_PER_POLL
    }

    /// Filters bytes from the client before h2 reads them. Returns the number of bytes at the
    /// beginning of `bytes` that are passed unchanged. All later bytes are replaced by the filter's
    /// output, which [`take_rewritten`](Self::take_rewritten) provides.
    pub(super) fn follow(&self, bytes: &[u8]) -> usize {
        self.read_in_poll.set(self.read_in_poll.get() + bytes.len());
        let mut frames = self.frames.borrow_mut();
        let kept = frames.follow(bytes, self.connections.clock.now());
        let (heads, all) = frames.counts_in_poll();
        // The stream of each head may exist until the end of the poll, even if it is malformed.
        let streams = self.streams.borrow().len() + heads;
        self.most_streams.set(self.most_streams.get().max(streams));
        self.most_frames.set(self.most_frames.get().max(all));
        kept
    }

    /// Moves output of the frame filter, which replaces bytes of the client, into the buffer from
    /// which h2 reads. Returns true if there was any.
    pub(super) fn take_rewritten(&self, buffer: &mut ReadBuf<'_>) -> bool {
        let mut frames = self.frames.borrow_mut();
        let rest = frames.rewritten();
        let len = rest.len().min(buffer.remaining());
        if len > 0 {
            buffer.put_slice(&rest[..len]);
            frames.take(len);
        }
        len > 0
    }

    /// Returns the number of bytes that the connection may hold at present, in addition to those
    /// that are charged for each connection in use.
    pub(super) fn buffer_bytes(&self) -> usize {
        // The tables grow by doubling.
        let slots = |most: &Cell<usize>| {
            most.get().next_power_of_two().max(UNCHARGED_SLOTS) - UNCHARGED_SLOTS
        };
        let blocked = if self.is_blocked.get() { BLOCKED_BYTES } else { 0 };
        let frames = self.frames.borrow();
        // The trailers of a trusted proxy's streams are charged to the streams.
        let trailers = if self.is_proxied() { 0 } else { frames.held_trailers.bytes() };
        frames.held()
            + trailers
            + blocked
            + slots(&self.most_streams) * STREAM_SLOT_BYTES
            + slots(&self.most_frames) * FRAME_SLOT_BYTES
    }

    /// Charges the memory budget for `bytes` bytes of a request body that the client may send
    /// before the server reads them. Returns false if the budget is exhausted.
    pub(super) fn reserve_body(&self, bytes: usize) -> bool {
        let incoming = self.incoming.get() + bytes;
        let (has, needs) = (self.charge.bytes(), incoming.min(CONNECTION_WINDOW as usize));
        if needs > has && !self.connections.admit(self.peer, Share::Incoming, has, needs - has) {
            return false;
        }
        self.incoming.set(incoming);
        self.charge.set(needs);
        true
    }

    /// Returns the number of bytes that are charged for request bodies that the client may send.
    pub(crate) fn charged_for_bodies(&self) -> usize {
        self.charge.bytes()
    }

    pub(super) fn release_body(&self, bytes: usize) {
        let incoming = self.incoming.get() - bytes;
        self.incoming.set(incoming);
        self.charge.set(incoming.min(CONNECTION_WINDOW as usize));
    }

    /// Tells the frame filter that the server has ended a stream.
    pub(super) fn on_stream_done(&self, stream: u32) {
        self.frames.borrow_mut().end_stream(stream);
    }

    /// Returns the clock tick in which an unfinished request head began, if there is one.
    pub(crate) fn unfinished_since(&self) -> Option<u32> {
        self.frames.borrow().unfinished_since()
    }
}

impl std::fmt::Debug for Http2State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2State").field("streams", &self.streams).finish_non_exhaustive()
    }
}
