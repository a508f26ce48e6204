//! What the streams of an HTTP/2 connection have in common, and what is counted of them.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rookery_exchange::{Charge, ExchangeStatus, Share};
use tokio::io::ReadBuf;

use super::frames::Frames;
use crate::connections::table::ConnectionTable;

/// Bytes that a peer may send of a stream before they are read, and of all streams of a connection: different, so that one that
/// nobody reads does not stop the others.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
pub(super) const CONNECTION_WINDOW: u32 = 1 << 20;

/// Bytes that are read before the streams are polled: what is in h2's buffer besides, in frames of a byte, is what h2 lets lie unread
/// of small ones.
const MAX_READ_PER_POLL: usize = 8 << 10;

/// Bytes of the buffer that messages of WebSockets leave by: small ones share it.
const WEBSOCKET_BUFFER: usize = 4 << 10;

/// Requests of a connection that may come to nothing, reset by its peer or refused for being wrong, while they are less than half
/// of all: a browser that leaves a page resets what is under way.
const MAX_WASTED: u64 = 100;

/// Whoever waits for what it has handed over to be written.
pub(crate) trait FlushListener {
    /// All of it has been.
    fn on_flushed(&self);

    /// It never will be.
    fn on_lost(&self);
}

/// See the module.
pub(crate) struct Http2Session {
    connections: Rc<ConnectionTable>,
    /// The keys of the streams that are open.
    streams: RefCell<Vec<usize>>,
    /// Those of them whose reply has been handed over: to their peer they may be over.
    responses_sent: Cell<usize>,
    /// Streams that have handed something over since all was written.
    unflushed: RefCell<Vec<Rc<dyn FlushListener>>>,
    /// Whether nothing leaves any more.
    is_closed: Cell<bool>,
    /// Whether all that was written has left, and whether the socket takes no more.
    is_clean: Cell<bool>,
    is_blocked: Cell<bool>,
    /// Bytes that have been read in this turn.
    read_in_poll: Cell<usize>,
    /// The name that the peer gave to TLS, where another name may be another's.
    tls_name: Option<Rc<str>>,
    frames: RefCell<Frames>,
    /// Bytes of DATA that have been sent.
    sent: Cell<u64>,
    opened: Cell<u64>,
    wasted: Cell<u64>,
    /// How many of the streams are WebSockets.
    websockets: Cell<usize>,
    /// What those write is put into before it is handed over, one after the other.
    websocket_buffer: RefCell<BytesMut>,
    /// Requests whose streams are over, and which the application has all the same.
    abandoned: RefCell<Vec<Arc<ExchangeStatus>>>,
    /// What may come of bodies before it is read, and what that is charged.
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
            frames: RefCell::new(Frames::new(connections.limits.streams)),
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

    // ---- its streams ----

    /// A stream begins. Says whether it is the only one.
    pub(super) fn on_stream_opened(&self, key: usize) -> bool {
        self.opened.set(self.opened.get() + 1);
        let mut streams = self.streams.borrow_mut();
        streams.push(key);
        streams.len() == 1
    }

    /// The whole reply of a stream has been handed over.
    pub(super) fn on_response_sent(&self) {
        self.responses_sent.set(self.responses_sent.get() + 1);
    }

    /// It has ended. Says whether it was the last one.
    pub(super) fn on_stream_closed(&self, key: usize, is_response_sent: bool) -> bool {
        self.responses_sent.set(self.responses_sent.get() - usize::from(is_response_sent));
        let mut streams = self.streams.borrow_mut();
        if let Some(at) = streams.iter().position(|other| *other == key) {
            streams.swap_remove(at);
        }
        streams.is_empty()
    }

    /// A stream has become a WebSocket, or is one no longer: says whether there is no other.
    pub(super) fn on_websocket_opened(&self) -> bool {
        self.websockets.replace(self.websockets.get() + 1) == 0
    }

    pub(super) fn on_websocket_closed(&self) -> bool {
        self.websockets.set(self.websockets.get() - 1);
        self.websockets.get() == 0
    }

    /// Whether there are WebSockets and nothing else: how long their peer may stand still is theirs to say.
    pub(crate) fn has_only_websockets(&self) -> bool {
        let websockets = self.websockets.get();
        websockets > 0 && websockets == self.streams.borrow().len()
    }

    pub(crate) fn has_streams(&self) -> bool {
        !self.streams.borrow().is_empty()
    }

    /// Whether the application owes one of them a reply.
    pub(crate) fn is_awaiting_response(&self) -> bool {
        self.streams.borrow().iter().any(|key| {
            self.connections.get(*key).is_some_and(|stream| stream.is_awaiting_response())
        })
    }

    /// For how many ticks none of its streams has been of use to anybody; `None` when one is being served.
    pub(crate) fn slowness(&self, now: u32) -> Option<u32> {
        let streams = self.streams.borrow();
        let mut all = streams
            .iter()
            .map(|key| self.connections.get(*key).and_then(|stream| stream.slowness(now)));
        all.try_fold(u32::MAX, |least, ticks| Some(least.min(ticks?)))
    }

    /// Requests that its peer has under way: those of streams that are not answered, and those that it gave up and the application still has.
    pub(super) fn count_requests_under_way(&self) -> usize {
        let mut left = self.abandoned.borrow_mut();
        // Whoever has the exchange has its fate as well, and lets go of it with the exchange.
        left.retain(|fate| Arc::strong_count(fate) > 1);
        left.len() + self.streams.borrow().len() - self.responses_sent.get()
    }

    /// A stream is over, and the application has its request.
    pub(crate) fn add_abandoned(&self, fate: &Arc<ExchangeStatus>) {
        self.abandoned.borrow_mut().push(Arc::clone(fate));
    }

    /// A request has come to nothing.
    pub(super) fn count_wasted(&self) {
        self.wasted.set(self.wasted.get() + 1);
    }

    /// Whether the peer has the server work for nothing.
    pub(super) fn is_abusive(&self) -> bool {
        let wasted = self.wasted.get();
        (wasted > MAX_WASTED && wasted > self.opened.get() / 2)
            || self.frames.borrow().is_flood(self.sent.get())
    }

    pub(super) fn bound_name(&self) -> Option<&str> {
        self.tls_name.as_deref()
    }

    // ---- what is written ----

    /// Something was written, or it was waited for until all had left.
    pub(super) fn on_written(&self, is_pending: bool, is_clean: bool) {
        self.is_blocked.set(is_pending);
        self.is_clean.set(is_clean && !is_pending);
    }

    /// Whether the socket takes no more: then no stream can be told to be slow.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_blocked.get()
    }

    /// A stream has handed something over: so many bytes of DATA, or a head.
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

    /// The first `len` bytes of what a WebSocket has to write, to be handed over. Of the buffer that it comes from there is one for all of a
    /// session, which is used again when what it held has left.
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

    /// h2 has nothing more to write: whoever waits for that is told, if all has left.
    pub(super) fn notify_flushed(&self) {
        if self.is_clean.get() {
            let unflushed = std::mem::take(&mut *self.unflushed.borrow_mut());
            for stream in unflushed {
                stream.on_flushed();
            }
        }
    }

    /// The connection is over: what has not left never will. h2 does not tell that to a stream whose reply it has whole.
    pub(super) fn on_closed(&self) {
        self.is_closed.set(true);
        let unflushed = std::mem::take(&mut *self.unflushed.borrow_mut());
        for stream in unflushed {
            stream.on_lost();
        }
    }

    // ---- what comes ----

    /// The connection is polled: so much may be read again.
    pub(super) fn begin_poll(&self) {
        self.read_in_poll.set(0);
    }

    /// Whether no more is to be read before the streams have had their turn.
    pub(super) fn has_read_enough(&self) -> bool {
        self.read_in_poll.get() >= MAX_READ_PER_POLL
    }

    /// Follows what has been read. Returns how many of the first bytes are for h2 as they are; see [`Frames::follow`].
    pub(super) fn follow(&self, bytes: &[u8]) -> usize {
        self.read_in_poll.set(self.read_in_poll.get() + bytes.len());
        self.frames.borrow_mut().follow(bytes, self.connections.clock.now())
    }

    /// Moves what comes next for h2 into `buffer`, of frames that were rewritten. Returns whether there was any.
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

    /// Bytes of memory that frames hold which are rewritten.
    pub(super) fn held_for_frames(&self) -> usize {
        self.frames.borrow().held()
    }

    /// A body of so many bytes is to come. `false` when there is no room for what of it may lie here unread.
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

    /// Notes that the server is done with a stream: frames that still come for it are h2's to judge.
    pub(super) fn on_stream_done(&self, stream: u32) {
        self.frames.borrow_mut().close(stream);
    }

    /// Since which tick a head is on its way.
    pub(crate) fn unfinished_since(&self) -> Option<u32> {
        self.frames.borrow().unfinished_since()
    }
}

impl std::fmt::Debug for Http2Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http2Session").field("streams", &self.streams).finish_non_exhaustive()
    }
}
