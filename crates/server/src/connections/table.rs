//! The table of an I/O thread's connections, WebSockets and HTTP/2 streams.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{Budget, ListenerId, Peer, Share};
use tokio::sync::Notify;

use super::clock::Clock;
use super::eviction::candidates::{CheapestConnections, EvictionCandidates};
use super::eviction::cost::EvictionCost;
use super::eviction::network_counts::NetworkCounts;
use super::eviction::open_files::OpenFiles;
use super::eviction::search_pace::SearchPace;
use super::peers::Peers;
use super::pending_release::PendingRelease;
use super::trim::Trim;
use crate::config::Limits;

/// The number of entries for which an empty connection table keeps memory allocated.
const KEPT_ENTRIES: usize = 1024;

/// The interface of a connection, a WebSocket or an HTTP/2 stream to the connection table.
pub(crate) trait TableEntry: fmt::Debug {
    /// Returns the id of the listener that accepted the connection.
    fn listener(&self) -> ListenerId;

    /// Returns the serial number of the connection. An older connection has a lower number.
    fn serial(&self) -> u64;

    /// Returns the peer to which the entry is attributed.
    fn peer(&self) -> Peer;

    /// Closes the connection if it has missed a deadline. Called at each tick of the I/O thread's
    /// clock.
    fn sweep(&self, now: u32);

    /// Returns the number of clock ticks for which the client has made no progress, or `None` if
    /// the connection is being served.
    fn slowness(&self, now: u32) -> Option<u32>;

    /// Returns what the client loses if the connection is evicted for a new one. Returns `None` if
    /// it cannot be evicted, because it is being closed, or because it is a trusted proxy's
    /// connection with streams.
    fn eviction_cost(&self) -> Option<EvictionCost>;

    /// Returns how many bytes of a share of the memory budget the entry has, including those that
    /// an eviction would not release.
    fn charged(&self, share: Share) -> usize;

    /// Returns how many bytes of a share of the memory budget the connection would release if it
    /// were evicted.
    fn held(&self, share: Share) -> usize;

    /// Closes the connection to release the `held` bytes that it uses of a share of the memory
    /// budget, because other connections need them.
    fn evict_for_memory(&self, share: Share, held: usize);

    /// Counts `bytes` of a response that has arrived for the request that waits for it. Returns
    /// false if the memory budget has no room for them.
    fn admit_response(&self, _bytes: usize) -> bool {
        true
    }

    /// Charges the memory budget for `bytes` bytes of trailers that h2 holds for an HTTP/2 stream,
    /// whose client is one of many behind a trusted proxy. If the budget is exhausted, ends the
    /// stream.
    fn charge_trailers(&self, _bytes: usize) {}

    /// Closes the connection at once, because a new connection needs its slot in the connection
    /// table.
    fn evict_for_slot(&self);

    /// Closes the connection gracefully: an idle connection at once, a busy one after its response,
    /// and a WebSocket with close code 1001.
    fn stop(&self);

    /// Closes the connection at once, without waiting for a response that is being sent.
    fn abort(&self);

    /// Returns true if the connection waits for the application's response. A listener that is
    /// being stopped does not wait for such a connection, which stays open until its response is
    /// sent.
    fn is_awaiting_response(&self) -> bool;

    /// Ends a streamed response, because the application sends no more chunks while it waits for
    /// the server to stop. The response stays incomplete unless it is an event stream. Aborts
    /// connections and HTTP/2 streams that receive a request body, and an HTTP/2 connection without
    /// open streams.
    fn cut_for_stop(&self) {}

    /// Records that the I/O thread ends, and with it the connection. The access log must then not
    /// blame the client.
    fn on_thread_end(&self) {}

    /// Returns true for an HTTP/2 stream, which belongs to a connection and does not count as a
    /// connection itself.
    fn is_substream(&self) -> bool {
        false
    }

    /// Returns true if the connection is being closed.
    fn is_ending(&self) -> bool;

    /// Returns true for a WebSocket.
    fn is_websocket(&self) -> bool {
        false
    }

    /// Returns true for an HTTP/2 connection whose streams are all WebSockets.
    fn has_only_websockets(&self) -> bool {
        false
    }

    /// Wakes the task of the connection, because an event that the task waits for has happened.
    fn wake(&self);
}

/// The table of one I/O thread's connections, with their limits, clock and memory budget.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    limits: RefCell<Rc<Limits>>,
    pub(crate) clock: Clock,
    pub(crate) peers: Peers,
    /// The memory budget of all connections together.
    pub(crate) budget: Arc<Budget>,
    pub(super) pending_release: PendingRelease,
    pub(super) eviction_candidates: EvictionCandidates,
    pub(super) cheapest: CheapestConnections,
    pub(super) network_counts: NetworkCounts,
    /// The pace of searches for memory, by share.
    pub(super) memory_searches: [SearchPace; Share::COUNT],
    /// The pace of searches for the slowest connections.
    pub(super) slow_searches: SearchPace,
    /// The files that clients have open.
    pub(crate) open_files: OpenFiles,
    pub(crate) trim: Trim,
    entries: RefCell<Vec<Option<Rc<dyn TableEntry>>>>,
    free: RefCell<Vec<usize>>,
    /// The number of table entries in use, including HTTP/2 streams.
    occupied: Cell<usize>,
    substreams: Cell<usize>,
    /// The number of connections that were accepted so far, which gives each connection its serial
    /// number.
    serial: Cell<u64>,
    /// Notified whenever an entry has been removed from the table.
    pub(crate) removed: Notify,
}

impl ConnectionTable {
    pub(crate) fn new(
        limits: &Limits,
        budget: Arc<Budget>,
        trim: Option<fn(bool)>,
    ) -> Rc<ConnectionTable> {
        Rc::new(ConnectionTable {
            clock: Clock::new(limits),
            peers: Peers::default(),
            limits: RefCell::new(Rc::new(*limits)),
            budget,
            pending_release: PendingRelease::default(),
            eviction_candidates: EvictionCandidates::default(),
            cheapest: CheapestConnections::default(),
            network_counts: NetworkCounts::default(),
            memory_searches: Default::default(),
            slow_searches: SearchPace::default(),
            open_files: OpenFiles::default(),
            trim: Trim::new(trim),
            entries: RefCell::default(),
            free: RefCell::default(),
            occupied: Cell::new(0),
            substreams: Cell::new(0),
            serial: Cell::new(0),
            removed: Notify::new(),
        })
    }

    /// Returns the limits on clients.
    #[inline]
    pub(crate) fn limits(&self) -> Rc<Limits> {
        Rc::clone(&self.limits.borrow())
    }

    /// Sets the limits on clients. They apply to all further requests and connections, and the time
    /// limits also to the present ones. The memory budget keeps its size.
    pub(crate) fn set_limits(&self, limits: &Limits) {
        self.limits.replace(Rc::new(*limits));
        self.clock.set_limits(limits);
    }

    /// Returns the serial number for the next connection.
    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Adds a connection, WebSocket or stream to the table. The entry is removed when the returned
    /// slot is dropped.
    pub(crate) fn insert(self: &Rc<Self>, entry: Rc<dyn TableEntry>) -> Slot {
        let is_substream = entry.is_substream();
        self.occupied.set(self.occupied.get() + 1);
        self.substreams.set(self.substreams.get() + usize::from(is_substream));
        let counted = self.network_counts.is_on() && !is_substream;
        let network = counted.then(|| entry.peer().network());
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
        if let Some(network) = network {
            self.network_counts.add(key, network);
        }
        Slot { connections: Rc::clone(self), key, is_substream }
    }

    /// Removes the entry with this key from the table, and notifies the tasks that wait for a
    /// removal.
    fn remove(&self, key: usize, is_substream: bool) {
        let removed = self.entries.borrow_mut()[key].take();
        self.free.borrow_mut().push(key);
        self.occupied.set(self.occupied.get() - 1);
        self.substreams.set(self.substreams.get() - usize::from(is_substream));
        drop(removed);
        if self.network_counts.is_on() {
            self.network_counts.remove(key);
            self.network_counts.end_if_few(self.len());
        }
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

    /// Attributes the connection with this key to another network.
    pub(crate) fn set_network(&self, key: usize, network: u64) {
        if self.network_counts.is_on() {
            self.network_counts.set_network(key, network);
        }
    }

    /// Returns the table entry with this key, if it exists.
    pub(crate) fn get(&self, key: usize) -> Option<Rc<dyn TableEntry>> {
        self.entries.borrow().get(key).cloned().flatten()
    }

    /// Wakes the task of the connection, WebSocket or stream with this key.
    pub(crate) fn wake(&self, key: usize) {
        if let Some(Some(entry)) = self.entries.borrow().get(key) {
            entry.wake();
        }
    }

    /// Returns the number of connections in the table. HTTP/2 streams do not count, not even a
    /// stream that outlives its connection.
    pub(crate) fn len(&self) -> usize {
        self.occupied.get() - self.substreams.get()
    }

    /// Returns the number of entries: connections, HTTP/2 streams and WebSockets.
    pub(super) fn entries(&self) -> usize {
        self.occupied.get()
    }

    /// Returns true if the table contains neither connections nor streams.
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

    /// Returns the connections and HTTP/2 streams of a listener.
    pub(crate) fn of_listener(&self, listener: ListenerId) -> Vec<Rc<dyn TableEntry>> {
        self.entries
            .borrow()
            .iter()
            .flatten()
            .filter(|entry| entry.listener() == listener)
            .cloned()
            .collect()
    }

    /// Advances the clock by a tick, enforces the deadlines of all connections, and returns free
    /// memory to the system. Called periodically while the I/O thread runs.
    pub(crate) fn sweep(&self) {
        let now = self.clock.advance();
        self.for_each(|_, entry| entry.sweep(now));
        if self.is_empty() {
            self.trim.on_tick_without_connections();
        } else {
            self.trim.on_tick();
        }
    }

    /// Records that the I/O thread ends, and with it all connections.
    pub(crate) fn on_thread_end(&self) {
        self.for_each(|_, entry| entry.on_thread_end());
    }

    /// Calls `visit` with the key of each table entry and the entry itself. `visit` must not add or
    /// remove entries, because the table is borrowed during the call.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, &Rc<dyn TableEntry>)) {
        for (key, entry) in self.entries.borrow().iter().enumerate() {
            if let Some(entry) = entry {
                visit(key, entry);
            }
        }
    }
}

/// The place of a connection, WebSocket or stream in the connection table. The place is freed when
/// this value is dropped, which happens even if the connection's task panics or its thread ends.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Rc<ConnectionTable>,
    key: usize,
    /// True if the table entry is an HTTP/2 stream within a connection.
    is_substream: bool,
}

impl Slot {
    pub(crate) fn key(&self) -> usize {
        self.key
    }

    /// Removes the entry from this place of the table, but keeps the place reserved for another
    /// entry.
    pub(crate) fn clear(&self) {
        let removed = self.connections.entries.borrow_mut()[self.key].take();
        drop(removed);
    }

    /// Puts another entry into this place of the table, such as the WebSocket that a connection has
    /// become.
    pub(crate) fn replace(&self, entry: Rc<dyn TableEntry>) {
        let before = self.connections.entries.borrow_mut()[self.key].replace(entry);
        drop(before);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.trim.schedule();
        self.connections.remove(self.key, self.is_substream);
    }
}

#[cfg(test)]
mod tests;
