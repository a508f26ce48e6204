//! Eviction: of a connection when the connection table is full, and of what the largest peer holds
//! when a share of the memory budget is used up.
//!
//! Networks are compared first: by the number of their connections if the table is full, and by
//! what all their connections, HTTP/2 streams and WebSockets hold if memory is short. For memory,
//! then the peers of the largest network are compared, and then what that peer holds. The searches
//! visit all entries of the table, but happen only when nothing is free.

pub(super) mod candidates;
pub(crate) mod cost;
pub(super) mod network_counts;
pub(crate) mod open_files;
pub(super) mod search_pace;

use std::cmp::Reverse;
use std::rc::Rc;

use rookery_exchange::{ById, Peer, Share};

use self::candidates::{Candidate, Rank, keep_greatest};
use self::search_pace::SHORT_SEARCH;
use super::table::{ConnectionTable, TableEntry};

/// The maximum number of files of evicted entries that may be open at a time. They use descriptors
/// of the process's [reserve](crate::net::descriptor).
const MAX_PENDING_FILES: usize = 512;

/// The part of all files that may be files of evicted entries, as a divisor. It matters for a
/// process with few descriptors.
const PENDING_PART: usize = 8;

/// The part of a share of the memory budget that is freed after a long search, as a divisor.
const SEARCHED_PART: usize = 64;

impl ConnectionTable {
    /// Evicts a connection, so that a new one of `network` can be admitted. Returns false if none
    /// may be evicted.
    ///
    /// - If another network has more connections than `network` would have with the new one, the
    ///   connection of the largest network that [costs](cost::EvictionCost) the least is evicted.
    /// - Otherwise, the slowest connection of the largest networks is evicted, of which `network`
    ///   is one. If all of them are being served, none is evicted.
    ///
    /// A client whose network does not have the most connections therefore loses none.
    pub(crate) fn free_slot(&self, network: u64) -> bool {
        self.count_networks();
        let own = self.network_counts.count(network) + 1;
        let evicted = self
            .cheapest_of_largest(own)
            .or_else(|| self.take_slowest(network, |key, _| self.is_as_large(key, network, own)));
        let Some((key, entry)) = evicted else { return false };
        self.network_counts.remove(key);
        entry.evict_for_slot();
        true
    }

    /// Begins to count the connections of each network, unless they are already counted.
    fn count_networks(&self) {
        if !self.network_counts.is_on() {
            self.network_counts.begin(self.len());
            self.for_each(|key, entry| {
                let is_open = !entry.is_ending() || entry.eviction_cost().is_some();
                if is_open && !entry.is_substream() {
                    self.network_counts.add(key, entry.peer().network());
                }
            });
        }
    }

    /// Returns true if the entry with this key belongs to `network`, or to a network with at least
    /// `own` connections.
    fn is_as_large(&self, key: usize, network: u64, own: usize) -> bool {
        self.network_counts.of(key).is_some_and(|(of, count)| of == network || count >= own)
    }

    /// Returns the connection that is evicted from the largest network with more than `own`
    /// connections, with its key. It is the one that costs the least, and among equals the slowest,
    /// or else the newest; among many connections, at the time of the last search. If no connection
    /// of the largest network can be evicted, the next network is searched.
    fn cheapest_of_largest(&self, own: usize) -> Option<(usize, Rc<dyn TableEntry>)> {
        let now = self.clock.now();
        let mut before = None;
        while let Some(largest) = self.network_counts.largest(own, before) {
            let network = largest.1;
            for is_search_needed in [false, true] {
                if is_search_needed {
                    self.cheapest.keep(now, network, self.find_cheapest(network, now));
                } else if self.entries() < SHORT_SEARCH {
                    continue;
                }
                while let Some(((cost, _, serial), key)) = self.cheapest.pop(now, network) {
                    // Since the search, the connection may have begun something, or its slot may
                    // belong to another connection.
                    let is_same = |it: &Rc<dyn TableEntry>| {
                        it.serial() == serial && it.eviction_cost() == Some(cost.0)
                    };
                    let is_of_network =
                        self.network_counts.of(key).is_some_and(|(of, _)| of == network);
                    if let Some(entry) = self.get(key).filter(is_same).filter(|_| is_of_network) {
                        return Some((key, entry));
                    }
                }
            }
            before = Some(largest);
        }
        None
    }

    /// Returns the connections of a network that cost the least.
    fn find_cheapest(&self, network: u64, now: u32) -> Vec<(Rank, usize)> {
        let (mut least, mut found) = (None, Vec::new());
        self.network_counts.for_each_of(network, |key| {
            let Some(entry) = self.get(key) else { return };
            let Some(cost) = entry.eviction_cost() else { return };
            if least.is_none_or(|least| cost < least) {
                least = Some(cost);
                found.clear();
            }
            if least == Some(cost) {
                found.push(((Reverse(cost), entry.slowness(now), entry.serial()), key));
            }
        });
        found
    }

    /// Evicts the entry that holds the most bytes of a share of the memory budget within the peer
    /// that has the most, within the network that has the most. Among equals, evicts the newest.
    /// After a long search, evicts more of what this peer holds, and then of what others of another
    /// network hold, for those that need memory next.
    /// `peer` needs `more` bytes in addition to the `has` bytes that one of its entries holds.
    /// Returns false, and evicts nothing, if no other network, peer or entry has more than this one
    /// would have, or if that is in the same network while evicted entries still hold
    /// [much](Self::has_much_unreleased).
    ///
    /// For [`Share::Descriptors`], does what [`evict_file`](Self::evict_file) does.
    pub(super) fn evict_from_largest(
        &self,
        peer: Peer,
        share: Share,
        has: usize,
        more: usize,
    ) -> bool {
        if share == Share::Descriptors {
            return self.evict_file(peer);
        }
        let pace = &self.memory_searches[share as usize];
        if pace.is_paused(peer.network()) {
            return false;
        }
        let (mut networks, mut peers) = (Sums::default(), Sums::default());
        self.for_each(|_, entry| {
            networks.add(entry.peer().network(), entry.charged(share), entry.held(share) > 0);
        });
        let largest = networks.largest_beside(peer.network(), more);
        if largest.is_none() {
            pace.pause(peer.network(), self.entries());
            if self.has_much_unreleased(share) {
                return false;
            }
        }
        let network = largest.unwrap_or(peer.network());
        self.for_each(|_, entry| {
            if entry.peer().network() == network {
                peers.add(entry.peer().id(), entry.charged(share), entry.held(share) > 0);
            }
        });
        let largest = match largest {
            Some(_) => peers.largest(),
            None => peers.largest_beside(peer.id(), more),
        };
        // If no other peer has more, only the peer's own entries remain.
        let (id, least) = largest.map_or((peer.id(), has.saturating_add(more)), |id| (id, 0));
        let is_long = self.entries() >= SHORT_SEARCH;
        let wanted = if is_long { more.max(self.budget.limit(share) / SEARCHED_PART) } else { 1 };
        let takes_others = is_long && network != peer.network();
        let mut holders: Vec<(bool, usize, u64, Rc<dyn TableEntry>)> = Vec::new();
        self.for_each(|_, entry| {
            let of = entry.peer();
            let (held, is_of_largest) = (entry.held(share), of.id() == id);
            if of.network() == network && held > least && (is_of_largest || takes_others) {
                holders.push((is_of_largest, held, entry.serial(), Rc::clone(entry)));
            }
        });
        holders.sort_unstable_by_key(|(is_of_largest, held, serial, _)| {
            Reverse((*is_of_largest, *held, *serial))
        });
        let mut freed = 0;
        for (_, held, _, entry) in holders {
            if freed >= wanted {
                break;
            }
            entry.evict_for_memory(share, held);
            freed += held;
        }
        freed > 0
    }

    /// Evicts the newest entry with a file of the peer that has the most files, within the network
    /// that has the most, so that `newcomer` can open a file. Returns false if no other network has
    /// more files than that of `newcomer` would have, and no other peer of the network more than
    /// `newcomer` would have.
    ///
    /// An evicted entry closes its file when its task runs, and the tasks of many other requests
    /// may run before. Also returns false if too many such files are still open. Peers of the same
    /// network may leave only half as many open, so that they cannot keep other networks out.
    pub(super) fn evict_file(&self, newcomer: Peer) -> bool {
        let share = Share::Descriptors;
        let pending = self.pending_release.bytes(share);
        let most = (self.budget.limit(share) / PENDING_PART).min(MAX_PENDING_FILES);
        let evicted = self.open_files.find_larger(newcomer, |key| {
            // The application may have the request of an entry, which is then not evicted.
            let entry = self.get(key).filter(|entry| entry.held(share) > 0)?;
            let is_other = entry.peer().network() != newcomer.network();
            Some((entry.held(share), entry, if is_other { most } else { most / 2 }))
        });
        let evicted = evicted.filter(|(.., most)| pending <= *most);
        evicted.inspect(|(held, entry, _)| entry.evict_for_memory(share, *held)).is_some()
    }

    /// Evicts the slowest connection of the networks that have at least as many connections as that
    /// of `peer`, except the connection with the number `serial`, so that this one can use its
    /// memory. Returns false if all these connections are being served.
    pub(super) fn evict_slowest_for_memory(&self, peer: Peer, serial: u64) -> bool {
        self.count_networks();
        let (network, share) = (peer.network(), Share::Connections);
        let own = self.network_counts.count(network);
        let slowest = self.take_slowest(network, |key, entry| {
            entry.serial() != serial && entry.held(share) > 0 && self.is_as_large(key, network, own)
        });
        slowest.inspect(|(_, it)| it.evict_for_memory(share, it.held(share))).is_some()
    }

    /// Returns the slowest connection for which `may_evict` returns true, with its key, or `None`
    /// if all of them are being served, or `network` has caused a search just before. The
    /// connection is no longer a candidate.
    fn take_slowest(
        &self,
        network: u64,
        may_evict: impl Fn(usize, &dyn TableEntry) -> bool,
    ) -> Option<(usize, Rc<dyn TableEntry>)> {
        let now = self.clock.now();
        let mut candidates = self.eviction_candidates.0.borrow_mut();
        for is_search_needed in [false, true] {
            if is_search_needed {
                if self.slow_searches.is_paused(network) {
                    return None;
                }
                self.slow_searches.pause(network, self.entries());
                self.find_slowest(now, &may_evict, &mut candidates);
            }
            while let Some(candidate) = candidates.pop() {
                let Some(entry) = self.get(candidate.key) else { continue };
                // Since the search, the connection may have made progress, or its slot may belong
                // to another connection.
                let is_same = entry.serial() == candidate.age.0;
                let is_as_slow =
                    entry.slowness(now).is_some_and(|ticks| ticks >= candidate.slowness);
                if is_same && is_as_slow && may_evict(candidate.key, &*entry) {
                    return Some((candidate.key, entry));
                }
            }
        }
        None
    }

    fn find_slowest(
        &self,
        now: u32,
        may_evict: impl Fn(usize, &dyn TableEntry) -> bool,
        candidates: &mut Vec<Candidate>,
    ) {
        self.for_each(|key, entry| {
            let slowness = if entry.is_substream() { None } else { entry.slowness(now) };
            if let Some(slowness) = slowness.filter(|_| may_evict(key, &**entry)) {
                candidates.push(Candidate { slowness, age: Reverse(entry.serial()), key });
            }
        });
        keep_greatest(candidates);
    }
}

/// The sums that networks or peers hold, by their numbers, and whether any of each can be evicted.
#[derive(Default)]
struct Sums(ById<(usize, bool)>);

impl Sums {
    fn add(&mut self, of: u64, amount: usize, can_be_evicted: bool) {
        let (sum, can_any) = self.0.entry(of).or_default();
        *sum += amount;
        *can_any |= can_be_evicted;
    }

    /// Returns the one that holds the most among those of which something can be evicted.
    fn largest(&self) -> Option<u64> {
        let candidates = self.0.iter().filter(|(_, (_, can_be_evicted))| *can_be_evicted);
        candidates.map(|(of, (sum, _))| (*sum, *of)).max().map(|(_, of)| of)
    }

    /// Returns the one that holds the most, other than `own`, among those of which something can be
    /// evicted, if `own` with `more` would hold less.
    fn largest_beside(&mut self, own: u64, more: usize) -> Option<u64> {
        let (own_sum, _) = self.0.remove(&own).unwrap_or_default();
        let largest = self.largest()?;
        (own_sum.saturating_add(more) < self.0[&largest].0).then_some(largest)
    }
}

#[cfg(test)]
mod tests;
