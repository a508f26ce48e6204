//! The state that all streams of an HTTP/2 connection share, and the counters that detect abuse.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rookery_exchange::{Charge, ExchangeStatus, Share};
use tokio::io::ReadBuf;

use super::frames::Frames;
use crate::connections::table::ConnectionTable;

/// The flow-control window of a stream, which is the number of bytes that a client may send before
/// they are read. The window of a connection is larger, so that an unread stream does not block the
/// others.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
pub(super) const CONNECTION_WINDOW: u32 = 1 << 20;

/// The maximum number of bytes that are read before the streams are polled. This also bounds the
/// number of tiny frames that h2 buffers, because h2 closes a connection on which too many of them
/// are unread.
const MAX_READ_PER_POLL: usize = 8 << 10;

/// The size of the buffer for outgoing WebSocket messages. Small messages share a buffer.
const WEBSOCKET_BUFFER: usize = 4 << 10;

/// The number of wasted requests from which a connection may be abusive. A request is wasted if the
/// client resets it or if it is malformed. Wasted requests are tolerated while they are less than
/// half of all requests, because a browser that leaves a page resets all requests under way.
const MAX_WASTED: u64 = 100;

/// An object that waits until the data that it has passed to h2 has been written.
pub(crate) trait FlushListener {
    /// Called when all data has been written.
    fn on_flushed(&self);

    /// Called when the connection closed before all data was written.
    fn on_lost(&self);
}

/// The state that all streams of an HTTP/2 connection share.
pub(crate) struct Http2Session {
    connections: Rc<ConnectionTable>,
    /// The connection-table keys of the open streams.
    streams: RefCell<Vec<usize>>,
    /// The number of open streams whose response has been passed to h2. The client may consider
    /// them closed.
    responses_sent: Cell<usize>,
    /// The streams that have passed data to h2 since everything was last written.
    unflushed: RefCell<Vec<Rc<dyn FlushListener>>>,
    /// True once nothing can be written any more.
    is_closed: Cell<bool>,
    /// True if all written bytes have been sent; and true if the socket accepts no more bytes.
    is_clean: Cell<bool>,
    is_blocked: Cell<bool>,
    /// The number of bytes read in the current poll.
    read_in_poll: Cell<usize>,
    /// The server name from the TLS handshake, if requests must be for that name.
    tls_name: Option<Rc<str>>,
    frames: RefCell<Frames>,
    /// The number of bytes of DATA that have been sent.
    sent: Cell<u64>,
    opened: Cell<u64>,
    wasted: Cell<u64>,
    /// The number of streams that are WebSockets.
    websockets: Cell<usize>,
    /// The buffer for outgoing WebSocket messages.
    websocket_buffer: RefCell<BytesMut>,
    /// The requests whose streams have ended while the application still processes them.
    abandoned: RefCell<Vec<Arc<ExchangeStatus>>>,
    /// The number of body bytes that may arrive before they are read, and the charge for them.
    incoming: Cell<usize>,
    charge: Charge,
}

impl Http2Session {
    pub(super) fn new(
        connections: &Rc<ConnectionTable>,
        tls_name: Option<Rc<str>>,
    ) -> Rc<Http2Session> {
        Rc::new(Http2Session {
            connections: Rc::clone(connections),
            streams: RefCell::default(),
            responses_sent: Cell::new(0),
            unflushed: RefCell::default(),
            is_closed: Cell::new(false),
            is_clean: Cell::new(true),
            is_blocked: Cell::new(false),
            read_in_poll: Cell::new(0),
            tls_name,
            frames: RefCell::new(Frames::new(connections.limits.http2_max_concurrent_streams)),
            sent: Cell::new(0),
            opened: Cell::new(0),
            wasted: Cell::new(0),
            websockets: Cell::new(0),
            websocket_buffer: RefCell::default(),
            abandoned: RefCell::default(),
            incoming: Cell::new(0),
            charge: connections.charge(Share::Requests, 0),
        })
    }

    // ---- streams ----

    /// Notes that a stream was opened. Returns true if it is the only one.
    pub(super) fn on_stream_opened(&self, key: usize) -> bool {
        self.opened.set(self.opened.get() + 1);
        let mut streams = self.streams.borrow_mut();
        streams.push(key);
        streams.len() == 1
    }

    /// Notes that the complete response of a stream has been passed to h2.
    pub(super) fn on_response_sent(&self) {
        self.responses_sent.set(self.responses_sent.get() + 1);
    }

    /// Notes that a stream was closed. Returns true if no other stream is open.
    pub(super) fn on_stream_closed(&self, key: usize, is_response_sent: bool) -> bool {
        self.responses_sent.set(self.responses_sent.get() - usize::from(is_response_sent));
        let mut streams = self.streams.borrow_mut();
        if let Some(at) = streams.iter().position(|other| *other == key) {
            streams.swap_remove(at);
        }
        streams.is_empty()
    }

    /// Notes that a stream became a WebSocket. Returns true if it is the only WebSocket.
    pub(super) fn on_websocket_opened(&self) -> bool {
        self.websockets.replace(self.websockets.get() + 1) == 0
    }

    pub(super) fn on_websocket_closed(&self) -> bool {
        self.websockets.set(self.websockets.get() - 1);
        self.websockets.get() == 0
    }

    /// Returns true if all streams are WebSockets, and there is at least one. WebSockets have their
    /// own stall timeout.
    pub(crate) fn has_only_websockets(&self) -> bool {
        let websockets = self.websockets.get();
        websockets > 0 && websockets == self.streams.borrow().len()
    }

    pub(crate) fn has_streams(&self) -> bool {
        !self.streams.borrow().is_empty()
    }

    /// Returns true if the application owes a response to one of the streams.
    pub(crate) fn is_awaiting_response(&self) -> bool {
        self.streams.borrow().iter().any(|key| {
            self.connections.get(*key).is_some_and(|stream| stream.is_awaiting_response())
        })
    }

    /// Returns the number of ticks for which all streams have been unused, or `None` if one is
    /// being served.
    pub(crate) fn slowness(&self, now: u32) -> Option<u32> {
        let streams = self.streams.borrow();
        let mut all = streams
            .iter()
            .map(|key| self.connections.get(*key).and_then(|stream| stream.slowness(now)));
        all.try_fold(u32::MAX, |least, ticks| Some(least.min(ticks?)))
    }

    /// Counts the requests under way: streams without a complete response, and abandoned requests
    /// that the application still processes.
    pub(super) fn count_requests_under_way(&self) -> usize {
        let mut left = self.abandoned.borrow_mut();
        // The application holds the exchange, and with it a reference to its status.
        left.retain(|status| Arc::strong_count(status) > 1);
        left.len() + self.streams.borrow().len() - self.responses_sent.get()
    }

    /// Adds a request whose stream ended while the application still processes it.
    pub(crate) fn add_abandoned(&self, status: &Arc<ExchangeStatus>) {
        self.abandoned.borrow_mut().push(Arc::clone(status));
    }

    /// Counts a request that was reset or malformed.
    pub(super) fn count_wasted(&self) {
        self.wasted.set(self.wasted.get() + 1);
    }

    /// Returns true if the client makes the server work for nothing.
    pub(super) fn is_abusive(&self) -> bool {
        let wasted = self.wasted.get();
        (wasted > MAX_WASTED && wasted > self.opened.get() / 2)
            || self.frames.borrow().is_flood(self.sent.get())
    }

    pub(super) fn bound_name(&self) -> Option<&str> {
        self.tls_name.as_deref()
    }

    // ---- writing ----

    /// Notes the result of a write or flush. `is_clean` is true for a flush.
    pub(super) fn on_written(&self, is_pending: bool, is_clean: bool) {
        self.is_blocked.set(is_pending);
        self.is_clean.set(is_clean && !is_pending);
    }

    /// Returns true if the socket accepts no more bytes. A stream's lack of progress is then not
    /// the fault of its client.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// Notes that a stream has passed a head or `bytes` of DATA to h2.
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

    /// Copies the first `len` bytes of an outgoing WebSocket message into a chunk for h2. All
    /// WebSockets of a session share one buffer, whose memory is reused once its contents have been
    /// sent.
    pub(super) fn copy_chunk(&self, buffers: &[IoSlice<'_>], len: usize) -> Bytes {
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

    /// Notifies the waiting streams if all data has been written. Called when h2 has nothing to
    /// write.
    pub(super) fn notify_flushed(&self) {
        if self.is_clean.get() {
            let unflushed = std::mem::take(&mut *self.unflushed.borrow_mut());
            for stream in unflushed {
                stream.on_flushed();
            }
        }
    }

    /// Notifies the waiting streams that the connection closed. h2 does not notify streams whose
    /// complete response it has.
    pub(super) fn on_closed(&self) {
        self.is_closed.set(true);
        let unflushed = std::mem::take(&mut *self.unflushed.borrow_mut());
        for stream in unflushed {
            stream.on_lost();
        }
    }

    // ---- reading ----

    /// Begins a poll of the connection, which may read up to the limit again.
    pub(super) fn begin_poll(&self) {
        self.read_in_poll.set(0);
    }

    /// Returns true if the streams must be polled before more is read.
    pub(super) fn has_read_enough(&self) -> bool {
        self.read_in_poll.get() >= MAX_READ_PER_POLL
    }

    /// Passes received bytes through the filter. Returns the number of bytes at the beginning that
    /// h2 gets unchanged; [`Frames::follow`] explains the others.
    pub(super) fn follow(&self, bytes: &[u8]) -> usize {
        self.read_in_poll.set(self.read_in_poll.get() + bytes.len());
        self.frames.borrow_mut().follow(bytes, self.connections.clock.now())
    }

    /// Moves rewritten bytes into `buffer` for h2. Returns true if there were any.
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

    /// Returns the number of bytes of memory that rewritten frames occupy.
    pub(super) fn held_for_frames(&self) -> usize {
        self.frames.borrow().held()
    }

    /// Charges a body of `bytes` that may arrive before it is read. Returns false if the memory
    /// budget is exhausted.
    pub(super) fn reserve_body(&self, bytes: usize) -> bool {
        let incoming = self.incoming.get() + bytes;
        let (has, needs) = (self.charge.bytes(), incoming.min(CONNECTION_WINDOW as usize));
        if needs > has && !self.connections.admit(Share::Requests, has, needs - has) {
            return false;
        }
        self.incoming.set(incoming);
        self.charge.set(needs);
        true
    }

    pub(super) fn release_body(&self, bytes: usize) {
        let incoming = self.incoming.get() - bytes;
        self.incoming.set(incoming);
        self.charge.set(incoming.min(CONNECTION_WINDOW as usize));
    }

    /// Notes that the server has ended a stream. h2 checks frames that still arrive for it.
    pub(super) fn on_stream_done(&self, stream: u32) {
        self.frames.borrow_mut().close(stream);
    }

    /// Returns the tick in which an unfinished head began, if there is one.
    pub(crate) fn unfinished_since(&self) -> Option<u32> {
        self.frames.borrow().unfinished_since()
    }
}

impl std::fmt::Debug for Http2Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Session").field("streams", &self.streams).finish_non_exhaustive()
    }
}
