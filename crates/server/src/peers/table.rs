//! The table of all peers of an I/O thread: connections and WebSockets.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rookery_exchange::{Budget, ListenerId, Share};
use rookery_worker_protocol::SharedScoreboard;
use tokio::sync::Notify;

use super::clock::Clock;
use super::leaving::Leaving;
use super::reclaim::Reclaim;
use super::slowest::Slowest;
use crate::config::Limits;

/// Places in the table that are kept after a crowd has gone.
const KEPT_PLACES: usize = 1024;

/// A connection or a WebSocket, as whoever looks after all of them sees it.
pub(crate) trait Peer: fmt::Debug {
    /// Whose it is.
    fn listener(&self) -> ListenerId;

    /// Its number among all: the older has the lower.
    fn serial(&self) -> u64;

    /// Looks at its deadlines; called each tick.
    fn sweep(&self, now: u32);

    /// How long it has made no use of its seat, in ticks; `None` when it is being served.
    fn slowness(&self, now: u32) -> Option<u32>;

    /// What it holds of a share, if that can be had from it.
    fn held(&self, share: Share) -> usize;

    /// Ends for the sake of others, which need the `held` bytes that it has of a share.
    fn evict(&self, share: Share, held: usize);

    /// Ends for the sake of a newcomer that wants its seat.
    fn give_seat(&self);

    /// Ends in order: at once if it is idle, after the reply that it is owed, a WebSocket with 1001.
    fn stop(&self);

    /// Ends at once.
    fn abort(&self);

    /// Whether it waits for the application: a stop does not wait for it.
    fn is_owed(&self) -> bool;

    /// Whether a stop ends it where it is: within a reply, or, over HTTP/2, a body, or with nothing under way.
    fn is_unfinished(&self) -> bool {
        false
    }

    /// Whether it takes a seat: a stream within another peer takes none.
    fn has_seat(&self) -> bool {
        true
    }

    /// Whether it has been told to end.
    fn is_ending(&self) -> bool;

    /// Has its task polled: what it waits for has come.
    fn wake(&self);

    /// Returns true if it is the supervisor of this process, for a client of its own.
    fn is_supervised(&self) -> bool {
        false
    }

    /// Ends with its next reply; called a second time, at once if it has had no request since. A
    /// WebSocket stays open.
    fn retire(&self) {}

    /// Closes a WebSocket because its server restarts.
    fn restart(&self) {}

    /// Returns true for a WebSocket.
    fn is_websocket(&self) -> bool {
        false
    }
}

/// The peers of one I/O thread, and what they have in common.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) limits: Limits,
    pub(crate) clock: Clock,
    /// What all of them may hold.
    pub(crate) budget: Arc<Budget>,
    pub(super) leaving: Leaving,
    pub(super) slowest: Slowest,
    pub(crate) reclaim: Reclaim,
    entries: RefCell<Vec<Option<Rc<dyn Peer>>>>,
    free: RefCell<Vec<usize>>,
    /// Places that are taken, and those of them that are taken by peers within others.
    occupied: Cell<usize>,
    guests: Cell<usize>,
    /// Connections so far.
    serial: Cell<u64>,
    /// Told whenever one has gone.
    pub(crate) gone: Notify,
    /// The listener whose clients a supervisor counts, and where it reads their number.
    public: RefCell<Option<(ListenerId, Arc<SharedScoreboard>)>>,
}

impl Peers {
    pub(crate) fn new(limits: Limits, budget: Arc<Budget>, reclaim: Option<fn(bool)>) -> Rc<Peers> {
        Rc::new(Peers {
            clock: Clock::new(&limits),
            limits,
            budget,
            leaving: Leaving::default(),
            slowest: Slowest::default(),
            reclaim: Reclaim::new(reclaim),
            entries: RefCell::default(),
            free: RefCell::default(),
            occupied: Cell::new(0),
            guests: Cell::new(0),
            serial: Cell::new(0),
            gone: Notify::new(),
            public: RefCell::default(),
        })
    }

    /// Has the clients of a listener counted for a supervisor from now on; `None`: of no listener.
    pub(crate) fn set_public(&self, public: Option<(ListenerId, Arc<SharedScoreboard>)>) {
        self.public.replace(public);
    }

    /// The listener whose clients a supervisor counts.
    pub(crate) fn public_listener(&self) -> Option<ListenerId> {
        self.public.borrow().as_ref().map(|(listener, _)| *listener)
    }

    /// Returns the clients of that listener: all of its peers that are not the supervisor.
    pub(crate) fn public(&self) -> Vec<Rc<dyn Peer>> {
        let Some(listener) = self.public_listener() else { return Vec::new() };
        let mut peers = self.of(listener);
        peers.retain(|peer| !peer.is_supervised());
        peers
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.set(self.serial.get() + 1);
        self.serial.get()
    }

    /// Takes a peer in.
    pub(crate) fn join(self: &Rc<Self>, peer: Rc<dyn Peer>) -> Seat {
        let is_guest = !peer.has_seat();
        self.occupied.set(self.occupied.get() + 1);
        self.guests.set(self.guests.get() + usize::from(is_guest));
        let counted = self.public.borrow().as_ref().and_then(|(listener, board)| {
            let is_client = peer.listener() == *listener && !is_guest && !peer.is_supervised();
            is_client.then(|| Arc::clone(board))
        });
        if let Some(board) = &counted {
            board.open_connection();
        }
        let mut entries = self.entries.borrow_mut();
        let key = match self.free.borrow_mut().pop() {
            Some(key) => {
                entries[key] = Some(peer);
                key
            }
            None => {
                entries.push(Some(peer));
                entries.len() - 1
            }
        };
        Seat { peers: Rc::clone(self), key, is_guest, counted }
    }

    /// Lets go of a peer.
    fn leave(&self, key: usize, is_guest: bool) {
        let left = self.entries.borrow_mut()[key].take();
        self.free.borrow_mut().push(key);
        self.occupied.set(self.occupied.get() - 1);
        self.guests.set(self.guests.get() - usize::from(is_guest));
        drop(left);
        let mut entries = self.entries.borrow_mut();
        if self.occupied.get() == 0 {
            entries.clear();
            self.free.borrow_mut().clear();
            if entries.capacity() > KEPT_PLACES {
                entries.shrink_to_fit();
                self.free.borrow_mut().shrink_to_fit();
            }
        }
        self.gone.notify_waiters();
    }

    /// The peer in a seat, if one is there.
    pub(crate) fn get(&self, key: usize) -> Option<Rc<dyn Peer>> {
        self.entries.borrow().get(key).cloned().flatten()
    }

    /// Has the task of the peer in a seat polled.
    pub(crate) fn wake(&self, key: usize) {
        if let Some(Some(peer)) = self.entries.borrow().get(key) {
            peer.wake();
        }
    }

    /// Returns how many have a seat. Streams within a connection are not among them, not even one that outlives it.
    pub(crate) fn len(&self) -> usize {
        self.occupied.get() - self.guests.get()
    }

    /// Whether there is no peer at all, with a seat or without.
    pub(crate) fn is_empty(&self) -> bool {
        self.occupied.get() == 0
    }

    /// How many of them are a listener's.
    pub(crate) fn len_of(&self, listener: ListenerId) -> usize {
        let entries = self.entries.borrow();
        entries
            .iter()
            .flatten()
            .filter(|peer| peer.listener() == listener && peer.has_seat())
            .count()
    }

    /// Those of a listener.
    pub(crate) fn of(&self, listener: ListenerId) -> Vec<Rc<dyn Peer>> {
        self.entries
            .borrow()
            .iter()
            .flatten()
            .filter(|peer| peer.listener() == listener)
            .cloned()
            .collect()
    }

    /// Moves the clock on and looks at every deadline; called each tick for as long as the thread lives.
    pub(crate) fn sweep(&self) {
        let now = self.clock.advance();
        self.each(|_, peer| peer.sweep(now));
        if self.is_empty() {
            self.reclaim.all();
        } else {
            self.reclaim.tick();
        }
    }

    /// Calls `look` for each. None of them may come or go meanwhile.
    pub(super) fn each(&self, mut look: impl FnMut(usize, &Rc<dyn Peer>)) {
        for (key, peer) in self.entries.borrow().iter().enumerate() {
            if let Some(peer) = peer {
                look(key, peer);
            }
        }
    }
}

/// A seat in the table. Dropped, it is free: also when the task of its peer panics, or ends with the thread.
#[derive(Debug)]
pub(crate) struct Seat {
    peers: Rc<Peers>,
    key: usize,
    /// Whether it is that of a peer within another.
    is_guest: bool,
    /// Where it is counted for a supervisor.
    counted: Option<Arc<SharedScoreboard>>,
}

impl Seat {
    pub(crate) fn key(&self) -> usize {
        self.key
    }

    /// Lets go of the peer, and keeps the seat for another.
    pub(crate) fn vacate(&self) {
        let left = self.peers.entries.borrow_mut()[self.key].take();
        drop(left);
    }

    /// Gives the seat to another: to the WebSocket that a connection has become.
    pub(crate) fn give(&self, peer: Rc<dyn Peer>) {
        let before = self.peers.entries.borrow_mut()[self.key].replace(peer);
        drop(before);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(board) = &self.counted {
            board.close_connection();
        }
        self.peers.reclaim.expect();
        self.peers.leave(self.key, self.is_guest);
    }
}

#[cfg(test)]
mod tests;
