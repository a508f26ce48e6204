//! Rings of nodes in the order of their turns.

use std::collections::hash_map::Entry;
use std::ops::{Index, IndexMut};

use crate::by_id::ById;

/// The number of unused nodes for which a table without used ones keeps memory allocated.
const KEPT_NODES: usize = 1024;

/// A table of nodes, which are found by their ids and may form [rings](Ring). An unused node keeps
/// its content, and so its memory, for the next one that is added.
#[derive(Debug)]
pub(super) struct Nodes<N> {
    all: Vec<Node<N>>,
    unused: Vec<u32>,
    /// The used nodes by their ids.
    by_id: ById<u32>,
}

#[derive(Debug)]
struct Node<N> {
    id: u64,
    previous: u32,
    next: u32,
    content: N,
}

impl<N> Default for Nodes<N> {
    fn default() -> Nodes<N> {
        Nodes { all: Vec::new(), unused: Vec::new(), by_id: ById::default() }
    }
}

impl<N: Default> Nodes<N> {
    /// Returns the number of used nodes.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the number of nodes for which memory is allocated.
    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.all.len()
    }

    /// Returns the id of a node.
    pub(super) fn id(&self, at: u32) -> u64 {
        self.all[at as usize].id
    }

    /// Returns the used node with this id.
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Returns the used node with this id, and false. If there is none, adds one, and returns true
    /// with it. Its content is that of an unused node, or the default.
    #[inline]
    pub(super) fn find_or_add(&mut self, id: u64) -> (u32, bool) {
        match self.by_id.entry(id) {
            Entry::Occupied(entry) => (*entry.get(), false),
            Entry::Vacant(entry) => {
                let at = self.unused.pop().unwrap_or_else(|| {
                    let at = u32::try_from(self.all.len()).expect("fewer than 2^32 nodes");
                    self.all.push(Node { id, previous: at, next: at, content: N::default() });
                    at
                });
                self.all[at as usize].id = id;
                entry.insert(at);
                (at, true)
            }
        }
    }

    /// Makes a node unused, which must be in no ring.
    pub(super) fn remove(&mut self, at: u32) {
        self.by_id.remove(&self.all[at as usize].id);
        self.unused.push(at);
        if self.len() == 0 && self.all.len() > KEPT_NODES {
            *self = Nodes::default();
        }
    }
}

impl<N> Index<u32> for Nodes<N> {
    type Output = N;

    #[inline]
    fn index(&self, at: u32) -> &N {
        &self.all[at as usize].content
    }
}

impl<N> IndexMut<u32> for Nodes<N> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut N {
        &mut self.all[at as usize].content
    }
}

/// A ring of nodes of one table in the order of their turns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ring {
    /// The node that has the next turn. Meaningless while the ring is empty.
    first: u32,
    len: u32,
}

impl Ring {
    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the node that has the next turn.
    pub(super) fn first(self) -> Option<u32> {
        (self.len > 0).then_some(self.first)
    }

    /// Returns the nodes in the order of their turns.
    pub(super) fn iter<N>(self, table: &Nodes<N>) -> impl Iterator<Item = u32> {
        let next = move |at: &u32| Some(table.all[*at as usize].next);
        std::iter::successors(self.first(), next).take(self.len as usize)
    }

    /// Adds a node, which gets the last turn.
    #[inline]
    pub(super) fn add<N>(&mut self, table: &mut Nodes<N>, at: u32) {
        if self.len == 0 {
            self.first = at;
            table.all[at as usize].previous = at;
        }
        self.len += 1;
        let first = self.first;
        let last = std::mem::replace(&mut table.all[first as usize].previous, at);
        table.all[last as usize].next = at;
        let node = &mut table.all[at as usize];
        (node.previous, node.next) = (last, first);
    }

    /// Removes a node. If it had the next turn, the one behind it gets it.
    #[inline]
    pub(super) fn remove<N>(&mut self, table: &mut Nodes<N>, at: u32) {
        self.len -= 1;
        let Node { previous, next, .. } = table.all[at as usize];
        table.all[previous as usize].next = next;
        table.all[next as usize].previous = previous;
        if self.first == at {
            self.first = next;
        }
    }

    /// Gives a node of the ring the last turn.
    #[inline]
    pub(super) fn make_last<N>(&mut self, table: &mut Nodes<N>, at: u32) {
        if self.len == 1 {
            // The node keeps its turn.
        } else if self.first == at {
            self.first = table.all[at as usize].next;
        } else {
            self.remove(table, at);
            self.add(table, at);
        }
    }

    /// Gives a node of the ring the next turn.
    pub(super) fn make_first<N>(&mut self, table: &mut Nodes<N>, at: u32) {
        if self.first != at {
            self.make_last(table, at);
            self.first = at;
        }
    }
}
