//! The table of the connections and WebSockets of an I/O thread, and of the streams of its HTTP/2
//! connections.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{Budget, ListenerId, Share};
use rookery_worker_protocol::SharedScoreboard;
use tokio::sync::Notify;

use super::clock::Clock;
use super::eviction_candidates::EvictionCandidates;
use super::pending_release::PendingRelease;
use super::trim::Trim;
use crate::config::Limits;

/// The number of table entries for which memory is kept when the table becomes empty.
const KEPT_ENTRIES: usize = 1024;

/// A connection, a WebSocket or a stream of an HTTP/2 connection, as the table sees it.
pub(crate) trait TableEntry: fmt::Debug {
    /// The listener that accepted the connection.
    fn listener(&self) -> ListenerId;

    /// The number of the connection. An older connection has a lower number.
    fn serial(&self) -> u64;

    /// Enforces the deadlines. Called at each tick.
    fn sweep(&self, now: u32);

    /// Returns the number of ticks without progress by the client, or `None` while the connection
    /// is being served.
    fn slowness(&self, now: u32) -> Option<u32>;

    /// Returns the bytes of a share that the connection would release if it were evicted.
    fn held(&self, share: Share) -> usize;

    /// Closes the connection because others need the `held` bytes that it holds of a share.
    fn evict_for_memory(&self, share: Share, held: usize);

    /// Closes the connection because a new connection needs its slot.
    fn evict_for_slot(&self);

    /// Closes the connection gracefully: an idle one at once, a busy one after its response, and a
    /// WebSocket with close code 1001.
    fn stop(&self);

    /// Closes the connection at once.
    fn abort(&self);

    /// Returns true if the connection waits for the application's response. Stopping a listener
    /// does not wait for such connections.
    fn is_awaiting_response(&self) -> bool;

    /// Returns true if stopping closes the connection at once. This is the case within a streamed
    /// response and, over HTTP/2, within a request body or without open streams.
    fn is_cut_by_stop(&self) -> bool {
        false
    }

    /// Returns true for a stream within another connection, which occupies no slot of its own.
    fn is_substream(&self) -> bool {
        false
    }

    /// Returns true if the connection is being closed.
    fn is_ending(&self) -> bool;

    /// Wakes the task of the connection, because an event that the task waits for has happened.
    fn wake(&self);

    /// Returns true if the client is the supervisor of this process.
    fn is_supervised(&self) -> bool {
        false
    }

    /// Closes the connection with its next response. A second call closes it at once if it has had
    /// no request since the first. WebSockets stay open.
    fn drain(&self) {}

    /// Closes a WebSocket because its server restarts.
    fn close_for_restart(&self) {}

    /// Returns true for a WebSocket.
    fn is_websocket(&self) -> bool {
        false
    }
}

/// The connections of one I/O thread, and the state that they share.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    /// The memory that all connections together may hold.
    pub(crate) budget: Arc<Budget>,
    pub(super) pending_release: PendingRelease,
    pub(super) eviction_candidates: EvictionCandidates,
    pub(crate) trim: Trim,
    entries: RefCell<Vec<Option<Rc<dyn TableEntry>>>>,
    free: RefCell<Vec<usize>>,
    /// The number of entries in use, including substreams.
    occupied: Cell<usize>,
    substreams: Cell<usize>,
    /// The number of connections so far.
    serial: Cell<u64>,
    /// Notified whenever an entry has been removed.
    pub(crate) removed: Notify,
    /// The listener whose clients are counted for the supervisor, and the scoreboard that shows
    /// their number.
    public: RefCell<Option<(ListenerId, Arc<SharedScoreboard>)>>,
}

impl ConnectionTable {
    pub(crate) fn new(
        limits: Limits,
        budget: Arc<Budget>,
        trim: Option<fn(bool)>,
    ) -> Rc<ConnectionTable> {
        Rc::new(ConnectionTable {
            clock: Clock::new(&limits),
            limits,
            budget,
            pending_release: PendingRelease::default(),
            eviction_candidates: EvictionCandidates::default(),
            trim: Trim::new(trim),
            entries: RefCell::default(),
            free: RefCell::default(),
            occupied: Cell::new(0),
            substreams: Cell::new(0),
            serial: Cell::new(0),
            removed: Notify::new(),
            public: RefCell::default(),
        })
    }

    /// Starts to count the clients of a listener for the supervisor. `None` stops the count.
    pub(crate) fn set_public_listener(&self, public: Option<(ListenerId, Arc<SharedScoreboard>)>) {
        self.public.replace(public);
    }

    /// Returns the listener whose clients are counted for the supervisor.
    pub(crate) fn public_listener(&self) -> Option<ListenerId> {
        self.public.borrow().as_ref().map(|(listener, _)| *listener)
    }

    /// Returns the connections of the public listener, except those of the supervisor.
    pub(crate) fn public_clients(&self) -> Vec<Rc<dyn TableEntry>> {
        let Some(listener) = self.public_listener() else { return Vec::new() };
        let mut clients = self.of_listener(listener);
        clients.retain(|client| !client.is_supervised());
        clients
    }

    /// Returns a number for the next connection.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Adds an entry. The entry is removed when the returned slot is dropped.
    pub(crate) fn insert(self: &Rc<Self>, entry: Rc<dyn TableEntry>) -> Slot {
        let is_substream = entry.is_substream();
        self.occupied.set(self.occupied.get() + 1);
        self.substreams.set(self.substreams.get() + usize::from(is_substream));
        let counted = self.public.borrow().as_ref().and_then(|(listener, scoreboard)| {
            let is_client =
                entry.listener() == *listener && !is_substream && !entry.is_supervised();
            is_client.then(|| Arc::clone(scoreboard))
        });
        if let Some(scoreboard) = &counted {
            scoreboard.open_connection();
        }
        let mut entries = self.entries.borrow_mut();
        let key = match self.free.borrow_mut().pop() {
            Some(key) => {
                entries[key] = Some(entry);
                key
            }
            None => {
                entries.push(Some(entry));
                entries.len() - 1
            }
        };
        Slot { connections: Rc::clone(self), key, is_substream, counted }
    }

    /// Removes an entry.
    fn remove(&self, key: usize, is_substream: bool) {
        let removed = self.entries.borrow_mut()[key].take();
        self.free.borrow_mut().push(key);
        self.occupied.set(self.occupied.get() - 1);
        self.substreams.set(self.substreams.get() - usize::from(is_substream));
        drop(removed);
        let mut entries = self.entries.borrow_mut();
        if self.occupied.get() == 0 {
            entries.clear();
            self.free.borrow_mut().clear();
            if entries.capacity() > KEPT_ENTRIES {
                entries.shrink_to_fit();
                self.free.borrow_mut().shrink_to_fit();
            }
        }
        self.removed.notify_waiters();
    }

    /// Returns the entry with this key, if it exists.
    pub(crate) fn get(&self, key: usize) -> Option<Rc<dyn TableEntry>> {
        self.entries.borrow().get(key).cloned().flatten()
    }

    /// Wakes the task of the entry with this key.
    pub(crate) fn wake(&self, key: usize) {
        if let Some(Some(entry)) = self.entries.borrow().get(key) {
            entry.wake();
        }
    }

    /// Returns the number of connections. Streams within a connection do not count, not even a
    /// stream that outlives its connection.
    pub(crate) fn len(&self) -> usize {
        self.occupied.get() - self.substreams.get()
    }

    /// Returns true if there are neither connections nor streams.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied.get() == 0
    }

    /// Returns the number of connections of a listener.
    pub(crate) fn len_of_listener(&self, listener: ListenerId) -> usize {
        let entries = self.entries.borrow();
        entries
            .iter()
            .flatten()
            .filter(|entry| entry.listener() == listener && !entry.is_substream())
            .count()
    }

    /// Returns the connections and streams of a listener.
    pub(crate) fn of_listener(&self, listener: ListenerId) -> Vec<Rc<dyn TableEntry>> {
        self.entries
            .borrow()
            .iter()
            .flatten()
            .filter(|entry| entry.listener() == listener)
            .cloned()
            .collect()
    }

    /// Advances the clock by a tick, enforces all deadlines and trims memory. Called periodically
    /// while the thread runs.
    pub(crate) fn sweep(&self) {
        let now = self.clock.advance();
        self.for_each(|_, entry| entry.sweep(now));
        if self.is_empty() {
            self.trim.on_tick_without_connections();
        } else {
            self.trim.on_tick();
        }
    }

    /// Calls `visit` with the key of each entry and the entry. `visit` must not add or remove
    /// entries, because the table is borrowed meanwhile.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, &Rc<dyn TableEntry>)) {
        for (key, entry) in self.entries.borrow().iter().enumerate() {
            if let Some(entry) = entry {
                visit(key, entry);
            }
        }
    }
}

/// The place of an entry in the table. Dropping the value frees the place, even if the task of the
/// entry panics or is dropped with its thread.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Rc<ConnectionTable>,
    key: usize,
    /// True if the entry is a stream within another connection.
    is_substream: bool,
    /// The scoreboard that counts the connection, if it is counted for the supervisor.
    counted: Option<Arc<SharedScoreboard>>,
}

impl Slot {
    pub(crate) fn key(&self) -> usize {
        self.key
    }

    /// Drops the entry, and keeps its place for another one.
    pub(crate) fn clear(&self) {
        let removed = self.connections.entries.borrow_mut()[self.key].take();
        drop(removed);
    }

    /// Puts another entry in this place, such as the WebSocket that a connection has become.
    pub(crate) fn replace(&self, entry: Rc<dyn TableEntry>) {
        let before = self.connections.entries.borrow_mut()[self.key].replace(entry);
        drop(before);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(scoreboard) = &self.counted {
            scoreboard.close_connection();
        }
        self.connections.trim.schedule();
        self.connections.remove(self.key, self.is_substream);
    }
}

#[cfg(test)]
mod tests;
