//! A queue that divides its places and turns among networks and their peers.

use std::collections::VecDeque;

use crate::load::{Load, Queued};
use crate::peer::Peer;
use crate::ring::{Nodes, Ring};

/// The number of items for which an unused lane keeps memory allocated.
const KEPT_ITEMS: usize = 64;

/// A queue whose items are taken round-robin over networks, and within a network round-robin over
/// its peers. The items of one peer keep their order. An item therefore waits for the earlier items
/// of its own peer and, for each of them and itself, for at most one item of each other peer of its
/// network. For each item that is taken of its network, it waits for at most one of each other
/// network.
///
/// The queue has no limit of its own, and counts its [`Load`] for its owner.
#[derive(Debug)]
pub struct FairQueue<T> {
    /// The items of `alone_peer`, which were added since the queue was empty. They are moved to a
    /// lane when another peer adds an item. Most queues have few items most of the time, and then
    /// need no lanes.
    alone: VecDeque<T>,
    alone_peer: Peer,
    /// The lanes, each of which has the items of one peer. Their ids are those of the peers.
    lanes: Nodes<Lane<T>>,
    /// The networks that have items in the queue.
    networks: Nodes<Network>,
    /// The ring of the networks.
    turns: Ring,
    len: usize,
    load: Load,
}

#[derive(Debug)]
struct Lane<T> {
    /// The node of the peer's network.
    network: u32,
    items: VecDeque<T>,
    load: Load,
}

#[derive(Debug, Default)]
struct Network {
    /// The ring of the lanes of the network's peers.
    lanes: Ring,
    load: Load,
}

impl<T> Default for Lane<T> {
    fn default() -> Lane<T> {
        Lane { network: 0, items: VecDeque::new(), load: Load::default() }
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue {
            alone: VecDeque::new(),
            alone_peer: Peer::default(),
            lanes: Nodes::default(),
            networks: Nodes::default(),
            turns: Ring::default(),
            len: 0,
            load: Load::default(),
        }
    }
}

impl<T: Queued> FairQueue<T> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the queue has no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of peers that have items in the queue.
    pub fn peers(&self) -> usize {
        self.lanes.len() + usize::from(!self.alone.is_empty())
    }

    /// Returns the number of networks that have items in the queue.
    pub fn networks(&self) -> usize {
        self.networks.len() + usize::from(!self.alone.is_empty())
    }

    /// Returns true if the queue has items of this peer.
    pub fn has_items_of(&self, peer: Peer) -> bool {
        let is_alone = !self.alone.is_empty() && self.alone_peer.id() == peer.id();
        is_alone || self.lanes.find(peer.id()).is_some()
    }

    /// Returns true if the queue has items of this peer's network.
    pub fn has_items_of_network(&self, peer: Peer) -> bool {
        let is_alone = !self.alone.is_empty() && self.alone_peer.network() == peer.network();
        is_alone || self.networks.find(peer.network()).is_some()
    }

    /// Returns true if the queue has requests of this peer's network.
    pub fn has_requests_of_network(&self, peer: Peer) -> bool {
        self.held_by_network(peer.network()).requests > 0
    }

    /// Returns the load of all items together.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Returns true if the queue accepts another WebSocket message of a peer. `limit` is the load
    /// at which the queue is full.
    ///
    /// - A peer may hold as much as is free, and a network twice as much. A single peer can
    ///   therefore fill at most half of the queue, and a single network two thirds. Several
    ///   networks get equal parts.
    /// - A peer that holds no message may add one until the queue holds one and a half times its
    ///   limit, so that the others of its network cannot keep it out.
    /// - A peer whose network holds no message may add one until the queue holds twice its limit of
    ///   messages, so that the many peers of another network cannot keep it out, and nor can a
    ///   message that is longer than the limit.
    pub fn admits_message(&self, peer: Peer, limit: Load) -> bool {
        let free = limit.messages.saturating_sub(self.load.messages);
        let free_bytes = limit.bytes.saturating_sub(self.load.bytes);
        let fits = |held: Load, times: usize| {
            held.messages < free.saturating_mul(times)
                && held.bytes < free_bytes.saturating_mul(times)
        };
        (fits(self.held(peer), 1) && fits(self.held_by_network(peer.network()), 2))
            || self.admits_first_message(peer, limit)
    }

    /// Returns true if the queue accepts a WebSocket message of a peer even if it is full, because
    /// the peer or its network holds none.
    pub fn admits_first_message(&self, peer: Peer, limit: Load) -> bool {
        let [of_peers, of_networks] = self.load.admits_first_messages(limit);
        (of_peers && self.held(peer).messages == 0)
            || (of_networks && self.held_by_network(peer.network()).messages == 0)
    }

    /// Adds an item behind all items of its peer. A peer or network without items gets the last
    /// turn.
    pub fn push(&mut self, peer: Peer, item: T) {
        self.count(peer, item.load()).push_back(item);
    }

    /// Adds an item before the first item of its peer for which `is_later` returns true. `is_later`
    /// must return true for all items behind such an item.
    pub fn insert(&mut self, peer: Peer, item: T, is_later: impl Fn(&T) -> bool) {
        let items = self.count(peer, item.load());
        items.insert(items.partition_point(|other| !is_later(other)), item);
    }

    /// Puts an item back that was just taken, and gives its network, and its peer within the
    /// network, the next turn. The item gets its place among those of its peer as by
    /// [`insert`](Self::insert).
    pub fn put_back(&mut self, peer: Peer, item: T, is_later: impl Fn(&T) -> bool) {
        self.insert(peer, item, is_later);
        let Some(at) = self.lanes.find(peer.id()) else { return };
        let network = self.lanes[at].network;
        self.networks[network].lanes.make_first(&mut self.lanes, at);
        self.turns.make_first(&mut self.networks, network);
    }

    /// Removes and returns the next item with its peer. The next item of its network is taken after
    /// one of each other network, and the next item of its peer after one of each other peer of the
    /// network.
    #[inline]
    pub fn pop(&mut self) -> Option<(Peer, T)> {
        if let Some(item) = self.alone.pop_front() {
            self.len -= 1;
            self.load -= item.load();
            shrink(&mut self.alone);
            return Some((self.alone_peer, item));
        }
        self.pop_from_lane()
    }

    /// Removes and returns the next item of the first peer, in the order of the turns, for which
    /// `is_wanted` returns true. Only this peer and its network lose their turns.
    pub fn pop_of(&mut self, is_wanted: impl Fn(Peer) -> bool) -> Option<(Peer, T)> {
        self.end_alone();
        let at = self.turns().find(|at| is_wanted(self.peer(*at)))?;
        self.take(at, 0)
    }

    /// Removes and returns the first item, in the order of the turns, for which `is_wanted` returns
    /// true, of the peers for which `is_of_wanted` does. Only the peer of this item and its network
    /// lose their turns.
    pub fn take_first(
        &mut self,
        is_of_wanted: impl Fn(Peer) -> bool,
        is_wanted: impl Fn(&T) -> bool,
    ) -> Option<(Peer, T)> {
        self.end_alone();
        let (at, item) = self
            .turns()
            .filter(|at| is_of_wanted(self.peer(*at)))
            .find_map(|at| Some((at, self.lanes[at].items.iter().position(&is_wanted)?)))?;
        self.take(at, item)
    }

    /// Removes and returns all items for which `is_wanted` returns true.
    pub fn take_all(&mut self, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        if !self.iter().any(&is_wanted) {
            return taken;
        }
        self.end_alone();
        for at in self.turns().collect::<Vec<_>>() {
            let lane = &mut self.lanes[at];
            let before = taken.len();
            for _ in 0..lane.items.len() {
                let Some(item) = lane.items.pop_front() else { break };
                if is_wanted(&item) {
                    taken.push(item);
                } else {
                    lane.items.push_back(item);
                }
            }
            let mut load = Load::default();
            taken[before..].iter().for_each(|item| load += item.load());
            self.uncount(at, taken.len() - before, load);
        }
        taken
    }

    /// Returns the items, peer by peer.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.alone.iter().chain(self.turns().flat_map(|at| &self.lanes[at].items))
    }

    /// Returns the next item of each peer.
    pub fn heads(&self) -> impl Iterator<Item = &T> {
        let of_lanes = self.turns().filter_map(|at| self.lanes[at].items.front());
        self.alone.front().into_iter().chain(of_lanes)
    }

    /// Removes and returns a request in favour of a request of `peer`. It is the newest request of
    /// the peer that has the most requests, within the network that has the most. Returns `None` if
    /// the peer and its network would then not have fewer requests than the others.
    pub fn displace(&mut self, peer: Peer) -> Option<T> {
        FairQueue::displace_from(&mut [self], peer)
    }

    /// Does what [`displace`](Self::displace) does for several queues that share one limit, as if
    /// their items were in one queue.
    #[cold]
    pub fn displace_from(queues: &mut [&mut FairQueue<T>], peer: Peer) -> Option<T> {
        for queue in queues.iter_mut() {
            queue.end_alone();
        }
        let of_network = |network: u64| {
            queues.iter().map(|queue| queue.held_by_network(network).requests).sum::<usize>()
        };
        let of_peer = |peer| queues.iter().map(|queue| queue.held(peer).requests).sum::<usize>();
        // Among equals, the last in its ring is the newest.
        let networks = queues
            .iter()
            .flat_map(|queue| queue.turns.iter(&queue.networks).map(|at| queue.networks.id(at)));
        let largest = networks.max_by_key(|network| of_network(*network))?;
        let (network, own) = if of_network(peer.network()) + 1 < of_network(largest) {
            (largest, 0)
        } else {
            (peer.network(), of_peer(peer) + 1)
        };
        let peers = queues.iter().flat_map(|queue| queue.turns().map(|at| queue.peer(at)));
        let largest = peers
            .filter(|other| other.network() == network)
            .max_by_key(|other| of_peer(*other))
            .filter(|other| own < of_peer(*other))?;
        queues.iter_mut().find_map(|queue| queue.take_newest_request(largest))
    }

    fn take_newest_request(&mut self, peer: Peer) -> Option<T> {
        let at = self.lanes.find(peer.id())?;
        let newest = self.lanes[at].items.iter().rposition(|item| item.load().requests > 0)?;
        self.remove(at, newest)
    }

    fn held(&self, peer: Peer) -> Load {
        if self.turns.is_empty() {
            return if self.alone_peer == peer { self.load } else { Load::default() };
        }
        self.lanes.find(peer.id()).map_or(Load::default(), |at| self.lanes[at].load)
    }

    fn held_by_network(&self, network: u64) -> Load {
        if self.turns.is_empty() {
            return if self.alone_peer.network() == network { self.load } else { Load::default() };
        }
        self.networks.find(network).map_or(Load::default(), |at| self.networks[at].load)
    }

    /// Returns the peer of a lane.
    fn peer(&self, at: u32) -> Peer {
        Peer::new(self.lanes.id(at), self.networks.id(self.lanes[at].network))
    }

    /// Moves the items of `alone_peer` to a lane, because the queue needs lanes from now on.
    fn end_alone(&mut self) {
        if self.alone.is_empty() {
            return;
        }
        let at = self.lane(self.alone_peer);
        let lane = &mut self.lanes[at];
        std::mem::swap(&mut self.alone, &mut lane.items);
        lane.load = self.load;
        self.networks[lane.network].load = self.load;
    }

    /// Returns the lanes, network by network, each in the order of their turns.
    fn turns(&self) -> impl Iterator<Item = u32> {
        let networks = self.turns.iter(&self.networks);
        networks.flat_map(|network| self.networks[network].lanes.iter(&self.lanes))
    }

    /// Counts an item with the load `load`, and returns the items of its peer, to which the caller
    /// must add it.
    #[inline]
    fn count(&mut self, peer: Peer, load: Load) -> &mut VecDeque<T> {
        if self.len == 0 {
            self.alone_peer = peer;
        }
        let is_alone = self.turns.is_empty() && self.alone_peer == peer;
        if !is_alone {
            self.end_alone();
        }
        self.len += 1;
        self.load += load;
        if is_alone {
            return &mut self.alone;
        }
        let at = self.lane(peer);
        let lane = &mut self.lanes[at];
        lane.load += load;
        self.networks[lane.network].load += load;
        &mut lane.items
    }

    /// Returns the lane of a peer. A peer without a lane gets one that has the last turn. A network
    /// of which no peer had a lane gets the last turn among the networks.
    #[inline]
    fn lane(&mut self, peer: Peer) -> u32 {
        let (at, is_new) = self.lanes.find_or_add(peer.id());
        if is_new {
            let (network, is_new) = self.networks.find_or_add(peer.network());
            if is_new {
                self.turns.add(&mut self.networks, network);
            }
            self.lanes[at].network = network;
            self.networks[network].lanes.add(&mut self.lanes, at);
        }
        at
    }

    // Not inlined, because `pop` mostly does not need it.
    #[inline(never)]
    fn pop_from_lane(&mut self) -> Option<(Peer, T)> {
        let network = self.turns.first()?;
        self.take(self.networks[network].lanes.first()?, 0)
    }

    /// Removes an item of a lane, and gives the peer and its network the last turns.
    #[inline]
    fn take(&mut self, at: u32, item: usize) -> Option<(Peer, T)> {
        let (peer, network) = (self.peer(at), self.lanes[at].network);
        self.networks[network].lanes.make_last(&mut self.lanes, at);
        self.turns.make_last(&mut self.networks, network);
        Some((peer, self.remove(at, item)?))
    }

    #[inline]
    fn remove(&mut self, at: u32, item: usize) -> Option<T> {
        let items = &mut self.lanes[at].items;
        let item = if item == 0 { items.pop_front()? } else { items.remove(item)? };
        self.uncount(at, 1, item.load());
        Some(item)
    }

    /// Subtracts items with the load `load` that were removed from a lane. If it is empty then, the
    /// peer has no more turn, and the network neither if none of its peers has items.
    #[inline]
    fn uncount(&mut self, at: u32, items: usize, load: Load) {
        self.len -= items;
        self.load -= load;
        let lane = &mut self.lanes[at];
        lane.load -= load;
        let network = &mut self.networks[lane.network];
        network.load -= load;
        if lane.items.is_empty() {
            self.remove_lane(at);
        }
    }

    fn remove_lane(&mut self, at: u32) {
        let lane = &mut self.lanes[at];
        shrink(&mut lane.items);
        let network = lane.network;
        let lanes = &mut self.networks[network].lanes;
        lanes.remove(&mut self.lanes, at);
        self.lanes.remove(at);
        if lanes.is_empty() {
            self.turns.remove(&mut self.networks, network);
            self.networks.remove(network);
        }
    }
}

/// Frees the memory of a queue that is empty, if it is more than a lane keeps.
#[inline]
fn shrink<T>(items: &mut VecDeque<T>) {
    if items.is_empty() && items.capacity() > KEPT_ITEMS {
        *items = VecDeque::new();
    }
}

#[cfg(test)]
mod tests;
