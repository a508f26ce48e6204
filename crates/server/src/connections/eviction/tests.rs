//! Tests of eviction: examples, and a model test in which arbitrary peers hold arbitrary amounts.

use std::cell::Cell;

use rookery_exchange::{Charge, ListenerId};
use rookery_test_support::Random;

use super::candidates::CANDIDATES;
use super::cost::EvictionCost;
use super::*;
use crate::config::Limits;
use crate::connections::memory_budget::budget;
use crate::connections::table::Slot;

/// The number of steps of the model test, unless the environment sets another.
const STEPS: usize = 20_000;

/// A table entry that holds bytes of one share.
#[derive(Debug)]
struct Holder {
    serial: u64,
    peer: Cell<Peer>,
    share: Share,
    charge: Charge,
    /// True while the application has what the entry holds, so that it cannot be evicted.
    is_in_use: Cell<bool>,
    is_evicted: Cell<bool>,
    /// The cost of evicting the connection, or `None` if it cannot be evicted.
    cost: Cell<Option<EvictionCost>>,
    slowness: Cell<Option<u32>>,
    is_substream: bool,
}

impl TableEntry for Holder {
    fn listener(&self) -> ListenerId {
        1
    }

    fn serial(&self) -> u64 {
        self.serial
    }

    fn peer(&self) -> Peer {
        self.peer.get()
    }

    fn sweep(&self, _now: u32) {}

    fn slowness(&self, _now: u32) -> Option<u32> {
        self.slowness.get().filter(|_| self.eviction_cost().is_some())
    }

    fn eviction_cost(&self) -> Option<EvictionCost> {
        self.cost.get().filter(|_| !self.is_evicted.get())
    }

    fn is_substream(&self) -> bool {
        self.is_substream
    }

    fn charged(&self, share: Share) -> usize {
        if share == self.share { self.charge.bytes() } else { 0 }
    }

    fn held(&self, share: Share) -> usize {
        if self.is_in_use.get() { 0 } else { self.charged(share) }
    }

    fn evict_for_memory(&self, share: Share, held: usize) {
        assert_eq!(share, self.share);
        assert_eq!(held, self.charge.bytes());
        self.charge.set(0);
        self.is_evicted.set(true);
    }

    fn evict_for_slot(&self) {
        assert!(!self.is_evicted.replace(true));
    }

    fn stop(&self) {}

    fn abort(&self) {}

    fn is_awaiting_response(&self) -> bool {
        false
    }

    fn is_ending(&self) -> bool {
        self.is_evicted.get()
    }

    fn wake(&self) {}
}

struct Fixture {
    connections: Rc<ConnectionTable>,
    share: Share,
    all: Vec<(Slot, Rc<Holder>)>,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::of(Share::Outgoing)
    }

    /// Returns a table whose entries hold bytes or descriptors of `share`.
    fn of(share: Share) -> Fixture {
        let limits = Limits { max_client_memory: Some(1000), ..Limits::default() };
        let budget = budget(&limits);
        budget.set_limit(Share::Descriptors, budget.limit(Share::Outgoing));
        let connections = ConnectionTable::new(&limits, budget, None);
        Fixture { connections, share, all: Vec::new() }
    }

    fn limit(&self) -> usize {
        self.connections.budget.limit(self.share)
    }

    fn add(&mut self, peer: Peer, bytes: usize) -> Rc<Holder> {
        self.insert(peer, bytes, Some(EvictionCost::Served), false)
    }

    fn insert(
        &mut self,
        peer: Peer,
        bytes: usize,
        cost: Option<EvictionCost>,
        is_substream: bool,
    ) -> Rc<Holder> {
        let holder = Rc::new(Holder {
            serial: self.connections.next_serial(),
            peer: Cell::new(peer),
            share: self.share,
            charge: self.connections.charge(self.share, bytes),
            is_in_use: Cell::new(false),
            is_evicted: Cell::new(false),
            cost: Cell::new(cost),
            slowness: Cell::new(None),
            is_substream,
        });
        let slot = self.connections.insert(Rc::clone(&holder) as _);
        self.all.push((slot, Rc::clone(&holder)));
        (0..bytes).for_each(|_| self.count_file(&holder, true));
        holder
    }

    /// Counts a file of an entry, or ends the count.
    fn count_file(&self, holder: &Holder, is_open: bool) {
        if self.share == Share::Descriptors {
            let entry = self.all.iter().find(|(_, it)| it.serial == holder.serial);
            let (peer, key) = (holder.peer.get(), entry.unwrap().0.key());
            if is_open {
                self.connections.open_files.add(peer, key);
            } else {
                self.connections.open_files.remove(peer, key);
            }
        }
    }

    /// Lets an entry hold more, if that is admitted.
    fn grow(&self, holder: &Holder, more: usize) -> bool {
        let has = holder.charge.bytes();
        let is_admitted = self.connections.admit(holder.peer.get(), self.share, has, more);
        if is_admitted {
            holder.charge.set(holder.charge.bytes() + more);
            self.count_file(holder, true);
        }
        is_admitted
    }

    /// Returns what the entries hold for which `is_counted` returns true.
    fn sum(&self, is_counted: impl Fn(&Holder) -> bool) -> usize {
        let counted = self.all.iter().filter(|(_, holder)| is_counted(holder));
        counted.map(|(_, holder)| holder.charge.bytes()).sum()
    }

    fn evicted(&self) -> Vec<u64> {
        let evicted = self.all.iter().filter(|(_, holder)| holder.is_evicted.get());
        evicted.map(|(_, holder)| holder.serial).collect()
    }
}

fn peer(id: u64) -> Peer {
    Peer::new(id, id / 10)
}

#[test]
fn the_largest_entry_of_the_largest_peer_of_the_largest_network_is_evicted() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.limit(), 337);
    // Network 1 holds 180 bytes, and its peer 12 most of them in small parts. Peer 21 holds 150.
    for (id, bytes) in [(11, 50), (12, 40), (12, 45), (12, 45), (21, 150)] {
        fixture.add(peer(id), bytes);
    }
    let honest = fixture.add(peer(31), 0);
    assert!(fixture.grow(&honest, 20));
    assert_eq!(fixture.evicted(), [4], "the newest of its largest");
    // Now network 2 holds the most.
    assert!(fixture.grow(&honest, 100));
    assert_eq!(fixture.evicted(), [4, 5]);
    // The honest peer would hold more than any other.
    assert!(!fixture.grow(&honest, 200));
    assert_eq!(fixture.evicted(), [4, 5]);
}

#[test]
fn a_peer_that_needs_less_is_admitted_in_its_own_network() {
    let mut fixture = Fixture::new();
    for at in 0..30 {
        fixture.add(peer(11 + at % 2), 11);
    }
    let honest = fixture.add(peer(13), 0);
    assert!(fixture.grow(&honest, 50));
    assert_eq!(fixture.evicted(), [27, 28, 29, 30]);
    let (largest, same) = (fixture.add(peer(14), 0), fixture.add(peer(15), 0));
    assert!(fixture.grow(&largest, 80) && !fixture.grow(&same, 130));
}

#[test]
fn among_many_entries_one_search_frees_all_that_a_request_needs() {
    // The requester is in the network of the largest peer, or in another one.
    for requester in [peer(12), peer(21)] {
        let mut fixture = Fixture::new();
        (0..SHORT_SEARCH).for_each(|_| drop(fixture.add(peer(13), 0)));
        (0..5).for_each(|_| drop(fixture.add(peer(11), 60)));
        let same = fixture.add(requester, 0);
        assert!(fixture.grow(&same, 150), "{requester:?}");
        assert_eq!(fixture.evicted().len(), 3);
        // Within a network, searches have a pace.
        let is_paused = requester.network() == peer(11).network();
        let other = fixture.add(requester, 0);
        assert_eq!(fixture.grow(&other, 100), !is_paused);
    }
}

#[test]
fn a_search_for_memory_that_finds_nothing_leaves_the_slowest_connection_to_be_evicted() {
    let mut fixture = Fixture::of(Share::Connections);
    let slow: Vec<_> = (0..SHORT_SEARCH as u64).map(|at| fixture.add(peer(at), 0)).collect();
    let limit = fixture.connections.budget.limit(Share::Connections);
    slow[7].charge.set(limit);
    slow[7].slowness.set(Some(5));
    slow[7].cost.set(Some(EvictionCost::Idle));
    assert!(fixture.connections.admit_in_use(peer(7), 99, limit, 1));
    assert_eq!(fixture.evicted(), [8]);
}

#[test]
fn a_network_does_not_get_the_memory_of_its_evicted_connections_before_it_is_free() {
    let mut fixture = Fixture::new();
    for _ in 0..3 {
        fixture.add(peer(11), 100);
    }
    // An evicted connection, whose task has not been polled yet.
    let unreleased = fixture.connections.charge(fixture.share, 90);
    fixture.connections.add_pending_release(fixture.share, 90);
    let same = fixture.add(peer(12), 0);
    assert!(fixture.grow(&same, 37), "this much is free without an eviction");
    assert!(!fixture.grow(&same, 40));
    let honest = fixture.add(peer(21), 0);
    assert!(fixture.grow(&honest, 40));
    assert_eq!(fixture.evicted(), [3]);
    drop(unreleased);
    fixture.connections.finish_pending_release(fixture.share, 90);
    assert!(fixture.grow(&same, 80));
    assert_eq!(fixture.evicted(), [2, 3]);
}

#[test]
fn a_request_that_the_application_has_is_not_evicted_and_counts() {
    let mut fixture = Fixture::new();
    let in_use = fixture.add(peer(11), 200);
    in_use.is_in_use.set(true);
    fixture.add(peer(11), 30);
    fixture.add(peer(21), 100);
    // Peer 11 holds the most already.
    let own = fixture.add(peer(11), 0);
    assert!(!fixture.grow(&own, 40));
    let honest = fixture.add(peer(31), 0);
    assert!(fixture.grow(&honest, 30));
    assert_eq!(fixture.evicted(), [2]);
    assert!(fixture.grow(&honest, 20));
    assert_eq!(fixture.evicted(), [2, 3]);
}

/// The costs of evictions, from the least to the most.
const COSTS: [EvictionCost; 7] = [
    EvictionCost::Idle,
    EvictionCost::Head,
    EvictionCost::Body,
    EvictionCost::UnreadResponse,
    EvictionCost::WaitingRequest,
    EvictionCost::Session,
    EvictionCost::Served,
];

#[test]
fn the_cheapest_connection_of_the_network_with_the_most_makes_place() {
    let mut fixture = Fixture::new();
    for cost in [6, 5, 5, 2, 2] {
        fixture.insert(peer(11), 0, Some(COSTS[cost]), false);
    }
    fixture.insert(peer(21), 0, Some(EvictionCost::Idle), false);
    for _ in 0..3 {
        assert!(!fixture.connections.free_slot(1), "it has most connections itself");
    }
    for evicted in [vec![5], vec![4, 5], vec![3, 4, 5]] {
        assert!(fixture.connections.free_slot(3), "it has none");
        assert_eq!(fixture.evicted(), evicted);
    }
    assert!(!fixture.connections.free_slot(2), "it would have as many");
    assert!(fixture.connections.free_slot(3));
    assert_eq!(fixture.evicted(), [2, 3, 4, 5]);
    assert!(!fixture.connections.free_slot(3), "each network has one");
}

#[test]
fn a_search_among_many_connections_finds_those_that_make_place_next() {
    let mut fixture = Fixture::new();
    let all: Vec<_> = (0..2 * SHORT_SEARCH)
        .map(|_| fixture.insert(peer(11), 0, Some(EvictionCost::Idle), false))
        .collect();
    assert!(fixture.connections.free_slot(3));
    // The newest makes place, then the next one that is still idle.
    let [idle, busy, newest] = &all[all.len() - 3..] else { panic!("there are three") };
    assert!(newest.is_evicted.get());
    busy.cost.set(Some(EvictionCost::Served));
    assert!(fixture.connections.free_slot(3));
    assert!(idle.is_evicted.get() && !busy.is_evicted.get());
    // A connection that has come since the search is found by the next one.
    let new = fixture.insert(peer(11), 0, Some(EvictionCost::Idle), false);
    let rest = (0..CANDIDATES).take_while(|_| {
        assert!(fixture.connections.free_slot(3));
        !new.is_evicted.get()
    });
    assert!((1..CANDIDATES).contains(&rest.count()));
}

#[test]
fn among_networks_of_equal_size_the_slowest_connection_makes_place() {
    let mut fixture = Fixture::new();
    for (at, slowness) in [None, Some(5), Some(7), None].into_iter().enumerate() {
        let holder = fixture.add(peer(10 * (1 + at as u64 / 2)), 0);
        holder.slowness.set(slowness);
    }
    // Of a smaller network.
    fixture.add(peer(31), 0).slowness.set(Some(9));
    assert!(fixture.connections.free_slot(1));
    assert_eq!(fixture.evicted(), [2], "it is the largest with the new one");
    fixture.add(peer(11), 0);
    assert!(fixture.connections.free_slot(3));
    assert_eq!(fixture.evicted(), [2, 5]);
}

#[test]
fn a_file_or_else_a_connection_of_the_largest_network_makes_place_for_a_descriptor() {
    let mut fixture = Fixture::of(Share::Descriptors);
    for (id, files) in [(11, 1), (12, 1), (12, 1), (21, 1), (21, 0), (21, 0), (21, 0), (21, 0)] {
        fixture.insert(peer(id), files, Some(EvictionCost::Idle), false);
    }
    for evicted in [vec![3], vec![2, 3], vec![2, 3, 8], vec![2, 3, 7, 8]] {
        fixture.connections.free_descriptor();
        assert_eq!(fixture.evicted(), evicted, "the newest of the largest");
        if let [first @ 2..=3, ..] = evicted[..] {
            fixture.count_file(&Rc::clone(&fixture.all[first as usize - 1].1), false);
        }
    }
}

#[test]
fn few_evicted_entries_may_have_files_open_and_fewer_of_them_for_their_own_network() {
    let mut fixture = Fixture::of(Share::Descriptors);
    fixture.connections.budget.set_limit(Share::Descriptors, 80);
    (0..9).for_each(|_| drop(fixture.add(peer(11), 1)));
    let connections = Rc::clone(&fixture.connections);
    connections.add_pending_release(Share::Descriptors, 6);
    assert!(!connections.evict_file(peer(12)), "of the same network");
    assert!(connections.evict_file(peer(21)));
    connections.add_pending_release(Share::Descriptors, 5);
    assert!(!connections.evict_file(peer(21)));
    connections.finish_pending_release(Share::Descriptors, 11);
    assert!(connections.evict_file(peer(12)));
}

/// Connections arrive while the table is full, change and end in an arbitrary order. The new one of
/// a network is refused only if no other network has more connections with it, and no network loses
/// a connection while another one that could has more.
#[test]
fn only_a_network_with_the_most_connections_loses_one() {
    const SLOTS: usize = 12;
    let steps = std::env::var("ROOKERY_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok());
    let mut fixture = Fixture::new();
    let mut random = Random::new(2);
    for step in 0..steps.unwrap_or(STEPS) {
        let networks = if step / 500 % 2 == 0 { 3 } else { 8 };
        let network = random.below(networks) as u64;
        let pick = random.below(fixture.all.len().max(1));
        match random.below(8) {
            0 if !fixture.all.is_empty() => drop(fixture.all.swap_remove(pick)),
            1 if step % 1000 > 900 && !fixture.all.is_empty() => {
                // The table becomes nearly empty at times, so that the counts end.
                drop(fixture.all.drain(pick..));
            }
            2 if !fixture.all.is_empty() => {
                let holder = &fixture.all[pick].1;
                holder.slowness.set((random.below(2) == 0).then(|| random.below(9) as u32));
            }
            3 if !fixture.all.is_empty() => {
                fixture.all[pick].1.cost.set(COSTS.get(random.below(8)).copied());
            }
            4 if !fixture.all.is_empty() => {
                // A proxy sends the request of another client.
                let (slot, holder) = &fixture.all[pick];
                holder.peer.set(Peer::new(holder.serial, network));
                fixture.connections.set_network(slot.key(), network);
            }
            5 => {
                fixture.insert(Peer::new(0, network), 0, None, true);
            }
            _ => {
                if fixture.connections.len() < SLOTS || arrive(&fixture, network) {
                    let cost = COSTS[random.below(COSTS.len())];
                    fixture.insert(Peer::new(step as u64, network), 0, Some(cost), false);
                }
            }
        }
        // An evicted connection may stay in the table until its task has run.
        let is_polled = random.below(2) == 0;
        fixture.all.retain(|(_, holder)| !(holder.is_evicted.get() && is_polled));
        while fixture.all.len() > 3 * SLOTS {
            drop(fixture.all.swap_remove(0));
        }
    }
}

/// Makes place for a new connection of a network, and returns true if there is any. Asserts that
/// the right connection is evicted.
fn arrive(fixture: &Fixture, network: u64) -> bool {
    let is_open = |it: &&Rc<Holder>| !it.is_substream && !it.is_evicted.get();
    let open: Vec<_> = fixture.all.iter().map(|(_, it)| it).filter(is_open).collect();
    let count = |of: u64| {
        open.iter().filter(|it| it.peer().network() == of).count() + usize::from(of == network)
    };
    let is_free = fixture.connections.free_slot(network);
    let evicted: Vec<_> = open.iter().filter(|it| it.is_evicted.get()).collect();
    assert_eq!(evicted.len(), usize::from(is_free));
    let others = open.iter().filter(|it| it.eviction_cost().is_some());
    let others = others.map(|it| (it, it.peer().network()));
    let Some(evicted) = evicted.first() else {
        for (other, of) in others {
            assert!(count(of) <= count(network), "{of} has more");
            assert!(count(of) < count(network) || other.slowness.get().is_none(), "{of} is slow");
        }
        return false;
    };
    let evicted_of = evicted.peer().network();
    let most = count(evicted_of);
    assert!(most >= count(network));
    for (other, of) in others {
        assert!(count(of) <= most, "{of} has more than {evicted_of}");
        assert!(of != evicted_of || most == count(network) || other.cost >= evicted.cost);
    }
    true
}

/// Peers hold more, let the application use what they hold, and end in an arbitrary order. The
/// limit is never exceeded. A peer is refused only if its network and itself would then hold as
/// much as any other whose entries can be evicted.
#[test]
fn a_peer_is_refused_only_if_it_would_be_among_the_largest() {
    let steps = std::env::var("ROOKERY_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok());
    let mut fixture = Fixture::new();
    let mut random = Random::new(1);
    for step in 0..steps.unwrap_or(STEPS) {
        let pick = random.below(fixture.all.len().max(1));
        match random.below(8) {
            0 | 1 if fixture.all.len() < 60 => {
                fixture.add(peer(random.below(40) as u64), 0);
            }
            2 if !fixture.all.is_empty() => drop(fixture.all.swap_remove(pick)),
            3 if !fixture.all.is_empty() => {
                fixture.all[pick].1.is_in_use.set(random.below(2) == 0);
            }
            _ if !fixture.all.is_empty() => {
                let holder = Rc::clone(&fixture.all[pick].1);
                let more = 1 + random.below(if step / 100 % 2 == 0 { 10 } else { 100 });
                let (peer, has) = (holder.peer.get(), holder.charge.bytes());
                let of_network = |of: u64| fixture.sum(|it| it.peer().network() == of);
                let before = [0, 1, 2, 3].map(of_network);
                let is_admitted = fixture.grow(&holder, more);
                if !is_admitted {
                    assert_refusal(&fixture, peer, has, more);
                }
                let own = fixture.sum(|it| it.peer().network() == peer.network());
                let needed = own + if is_admitted { 0 } else { more };
                let evicted = fixture.all.iter().filter(|(_, it)| it.is_evicted.get());
                for of in evicted.map(|(_, it)| it.peer().network()) {
                    assert!(of == peer.network() || before[of as usize] > needed, "{of} had less");
                }
            }
            _ => {}
        }
        assert!(fixture.connections.budget.used(fixture.share) <= fixture.limit());
        fixture.all.retain(|(_, holder)| !holder.is_evicted.get());
    }
}

/// Peers open files, of which an entry has one, let the application use them, and close them in an
/// arbitrary order, as in the model of memory.
#[test]
fn a_peer_gets_no_file_only_if_it_would_be_among_those_with_the_most() {
    let steps = std::env::var("ROOKERY_MODEL_STEPS").ok().and_then(|steps| steps.parse().ok());
    let mut fixture = Fixture::of(Share::Descriptors);
    fixture.connections.budget.set_limit(Share::Descriptors, 30);
    let mut random = Random::new(3);
    for step in 0..steps.unwrap_or(STEPS) {
        let pick = random.below(fixture.all.len().max(1));
        match random.below(8) {
            0 | 1 if !fixture.all.is_empty() => {
                let holder = Rc::clone(&fixture.all[pick].1);
                if holder.charge.bytes() > 0 {
                    fixture.count_file(&holder, false);
                }
                drop(fixture.all.swap_remove(pick));
            }
            2 if !fixture.all.is_empty() => {
                fixture.all[pick].1.is_in_use.set(random.below(2) == 0);
            }
            _ => {
                let peers = if step / 500 % 2 == 0 { 12 } else { 40 };
                let holder = fixture.add(peer(random.below(peers) as u64), 0);
                let peer = holder.peer.get();
                let of_network =
                    |of: u64| fixture.sum(|it| it.peer().network() == of && !it.is_evicted.get());
                let before = [0, 1, 2, 3].map(of_network);
                if !fixture.grow(&holder, 1) {
                    assert_refusal(&fixture, peer, 0, 1);
                    drop(fixture.all.pop());
                }
                let evicted: Vec<_> =
                    fixture.all.iter().filter(|(_, it)| it.is_evicted.get()).collect();
                assert!(evicted.len() <= 1);
                for (_, it) in evicted {
                    fixture.count_file(it, false);
                    let of = it.peer().network() as usize;
                    let own = before[peer.network() as usize] + 1;
                    assert!(it.peer().network() == peer.network() || before[of] > own);
                }
            }
        }
        fixture.all.retain(|(_, holder)| !holder.is_evicted.get());
        assert!(fixture.connections.budget.used(Share::Descriptors) <= 30);
    }
    for (_, holder) in &fixture.all {
        if holder.charge.bytes() > 0 {
            fixture.count_file(holder, false);
        }
    }
    assert!(!fixture.connections.evict_file(peer(99)), "no file is counted");
}

/// Asserts that a peer was refused with good reason.
fn assert_refusal(fixture: &Fixture, peer: Peer, has: usize, more: usize) {
    let own_network = fixture.sum(|it| it.peer().network() == peer.network()) + more;
    let own = fixture.sum(|it| it.peer().id() == peer.id()) + more;
    let others = fixture.all.iter().map(|(_, it)| it).filter(|it| it.held(fixture.share) > 0);
    for other in others {
        let of = other.peer();
        if of.network() != peer.network() {
            assert!(own_network >= fixture.sum(|it| it.peer().network() == of.network()));
        } else if of.id() != peer.id() {
            assert!(own >= fixture.sum(|it| it.peer().id() == of.id()));
        } else {
            assert!(has + more >= other.held(fixture.share));
        }
    }
}
