//! The number of connections of each network, which decides whose connection makes place for a new
//! one.

use std::cell::{Cell, RefCell};

use rookery_exchange::ById;

/// The number of connections of each network. They are counted from the first search for a
/// connection to evict until half as many are left. As long as no connection is evicted, the counts
/// thus cost nothing.
#[derive(Debug, Default)]
pub(in crate::connections) struct NetworkCounts {
    counts: RefCell<ById<usize>>,
    /// The networks for which the entries of the connection table count, by the keys of the
    /// entries. An HTTP/2 stream or an evicted connection counts for none.
    networks: RefCell<Vec<Option<u64>>>,
    /// The number of connections when the counts began, or 0 if the connections are not counted.
    begun_with: Cell<usize>,
}

impl NetworkCounts {
    /// Returns true if the connections are being counted.
    #[inline]
    pub(in crate::connections) fn is_on(&self) -> bool {
        self.begun_with.get() > 0
    }

    /// Begins to count the connections, of which there are `len`. The caller then
    /// [adds](Self::add) each of them.
    pub(super) fn begin(&self, len: usize) {
        self.begun_with.set(len.max(1));
    }

    /// Stops counting if only half as many connections are left as when the counts began.
    pub(in crate::connections) fn end_if_few(&self, len: usize) {
        if len <= self.begun_with.get() / 2 {
            self.begun_with.set(0);
            self.counts.take();
            self.networks.take();
        }
    }

    /// Counts the connection with this key for a network.
    pub(in crate::connections) fn add(&self, key: usize, network: u64) {
        let mut networks = self.networks.borrow_mut();
        if networks.len() <= key {
            networks.resize(key + 1, None);
        }
        networks[key] = Some(network);
        *self.counts.borrow_mut().entry(network).or_default() += 1;
    }

    /// Stops counting the connection with this key, because it ends.
    pub(in crate::connections) fn remove(&self, key: usize) {
        let network = self.networks.borrow_mut().get_mut(key).and_then(Option::take);
        let Some(network) = network else { return };
        let mut counts = self.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&network);
            }
        }
    }

    /// Counts the connection with this key for another network, if it is counted.
    pub(in crate::connections) fn set_network(&self, key: usize, network: u64) {
        let is_other = matches!(self.networks.borrow().get(key), Some(Some(of)) if *of != network);
        if is_other {
            self.remove(key);
            self.add(key, network);
        }
    }

    /// Returns the network for which the entry with this key counts, and the number of connections
    /// of the network.
    pub(super) fn of(&self, key: usize) -> Option<(u64, usize)> {
        let network = self.networks.borrow().get(key).copied().flatten()?;
        Some((network, self.count(network)))
    }

    /// Returns the number of connections of a network.
    pub(super) fn count(&self, network: u64) -> usize {
        self.counts.borrow().get(&network).copied().unwrap_or(0)
    }

    /// Returns the largest network among those with more than `least` connections, after `before`
    /// in the order from the largest to the smallest. A network is represented by the number of its
    /// connections and its own number.
    pub(super) fn largest(
        &self,
        least: usize,
        before: Option<(usize, u64)>,
    ) -> Option<(usize, u64)> {
        let counts = self.counts.borrow();
        let networks = counts.iter().map(|(network, count)| (*count, *network));
        let is_next = |it: &(usize, u64)| it.0 > least && before.is_none_or(|before| *it < before);
        networks.filter(is_next).max()
    }

    /// Calls `visit` with the key of each connection of a network.
    pub(super) fn for_each_of(&self, network: u64, mut visit: impl FnMut(usize)) {
        for (key, of) in self.networks.borrow().iter().enumerate() {
            if *of == Some(network) {
                visit(key);
            }
        }
    }
}
